"""The hostile suite: ``make hostile`` or ``python -m hostile [--seed N] [--only AREA] [--scale FRACTION]``.

Each module of an area prepares a few small files and models and returns its cases. A case disturbs a command (it kills
it, damages its files, fills its disk) and checks that the command gives the right result or one sentence. The runner
executes the cases in forked copies of one warm process, counts the outcomes and writes them to a JSON record. The
suite takes minutes and is not part of ``make test``.
"""
