"""Draw the figures of the README and the start pages: ``python docs/figures/readme.py docs/images``.

``readme.png`` and ``readme-dark.png`` compare the paper's best accuracy, the defaults of `UUClassifier` and supervised
training; the numbers come from stored records. ``start-history.png`` is the figure of docs/start/notebook.md.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS / "building" / "facts"))

from readme import DATASETS, read_cells  # noqa: E402

from uulearn.reproduction.experiments import DATASET_NAMES  # noqa: E402


class Colors(NamedTuple):
    """Colors of the chart on a light or a dark page."""

    background: str
    text: str
    faint: str
    paper: str
    default: str
    supervised: str


LIGHT = Colors("#ffffff", "#1f2328", "#d0d7de", "#8a6d3b", "#0b63b0", "#1f2328")
DARK = Colors("#0d1117", "#e6edf3", "#30363d", "#d8a657", "#6cb6ff", "#e6edf3")


def draw_comparison(plt: Any, colors: Colors) -> Any:
    """Draw one row per dataset and pair of priors; 3.9 inches wide, so that the text is legible on a phone."""
    cells = read_cells()
    style = {"font.size": 9, "text.color": colors.text, "axes.labelcolor": colors.text}
    style |= {"xtick.color": colors.text, "ytick.color": colors.text}
    with plt.rc_context(style):
        figure, axis = plt.subplots(figsize=(3.9, 4.5), layout="constrained", facecolor=colors.background)
        axis.set_facecolor(colors.background)
        places = [4.2 * DATASETS.index(cell.dataset) + i % 3 for i, cell in enumerate(cells)]
        for place, cell in zip(places, cells, strict=True):
            axis.plot([cell.paper, cell.default], [place, place], color=colors.default, lw=1.6, zorder=1)
            axis.plot([cell.default, cell.supervised], [place, place], color=colors.faint, lw=1.6, zorder=1)
        points = (
            ("paper", "paper's best", {"marker": "s", "s": 24, "color": colors.paper}),
            ("default", "uulearn default", {"marker": "o", "s": 34, "color": colors.default}),
            ("supervised", "with all labels", {"marker": "|", "s": 60, "color": colors.supervised, "lw": 1.8}),
        )
        for name, label, look in points:
            axis.scatter([getattr(cell, name) for cell in cells], places, label=label, zorder=2, **look)
        for number, dataset in enumerate(DATASETS):
            axis.text(77.3, 4.2 * number - 0.85, DATASET_NAMES[dataset], fontweight="bold", va="center")
        axis.set_yticks(places, [f"{cell.priors[0]}, {cell.priors[1]}" for cell in cells])
        axis.set(xlim=(77, 100), ylim=(15.3, -1.5), xlabel="test accuracy in percent")
        axis.grid(axis="x", color=colors.faint, lw=0.6)
        axis.set_axisbelow(True)
        axis.tick_params(length=0)
        for side in axis.spines.values():
            side.set_visible(False)
        figure.legend(loc="outside upper center", ncols=3, frameon=False, handletextpad=0.1, columnspacing=1.0)
    return figure


def draw_history(plt: Any) -> Any:
    """Run the code of docs/start/notebook.md and return the figure that it draws."""
    text = (DOCS / "start" / "notebook.md").read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "page"}
    with TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for example in doctest.DocTestParser().get_examples(text):
            exec(compile(example.source, "notebook.md", "single"), namespace)
    return namespace["axes"].figure


DRAWINGS = {
    "readme.png": lambda plt: draw_comparison(plt, LIGHT),
    "readme-dark.png": lambda plt: draw_comparison(plt, DARK),
    "start-history.png": draw_history,
}


def main() -> None:
    """Draw the figures whose names follow the folder on the command line, or all figures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder, *names = sys.argv[1:]
    for name in names or DRAWINGS:
        figure = DRAWINGS[name](plt)
        figure.savefig(
            Path(folder) / name, dpi=200 if name.startswith("readme") else 110, facecolor=figure.get_facecolor()
        )
        plt.close(figure)


if __name__ == "__main__":
    main()
