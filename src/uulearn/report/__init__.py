"""One self-contained HTML page about a trained model, for a person who has two files and never read the paper.

==================  ==================================================================================
`render_report`     the page as text, from the stored facts and the history of the training
`write_report`      the same into a file, whole or not at all
==================  ==================================================================================

The page opens with what the model is worth, without labels, and with every warning and what to do about it; the data,
the curves of the training (both signed brackets, the risk, where it went below zero, what was kept), the accuracy at
other shares of positives, what wrong shares would do, the scores by set, the most influential columns and the
commands follow. Figures are inline SVG with a text alternative and their numbers in a table: no script, no network,
nothing to install.
"""

from uulearn.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
