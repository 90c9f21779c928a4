"""Run Python with a pseudo-terminal as standard error."""

import os
import select

from helpers.processes import Program


def run_on_terminal(*arguments, columns=100):
    """Run Python with these arguments; return its output to the terminal (standard error) and to standard output."""
    terminal, other_end = os.openpty()
    program = Program(*arguments, env={"TERM": "xterm", "COLUMNS": str(columns)}, err=os.ttyname(other_end))
    shown = b""
    while program.running() or select.select([terminal], [], [], 0)[0]:
        if select.select([terminal], [], [], 0.05)[0]:
            shown += os.read(terminal, 65536)
    for end in (terminal, other_end):
        os.close(end)
    code, out, _ = program.read()
    assert code == 0
    return shown.decode(), out
