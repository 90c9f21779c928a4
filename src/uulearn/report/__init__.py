"""Create a self-contained HTML report about a model that was trained with ``uulearn fit``.

The page starts with the accuracy, estimated without labels, and all warnings with advice. Then it shows the data, the
training curves, the accuracy at other target priors, the effect of wrong class priors, the scores by set, the most
important columns and the commands. Charts are inline SVG with a text alternative and a table of their numbers. The page
loads no external resources and runs no scripts.
"""

from uulearn.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
