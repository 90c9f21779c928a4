"""Numbers printed in Table 2 (simple models) and Table 3 (deep models) of the paper."""

import functools
import json
from importlib import resources
from typing import NamedTuple


class Spread(NamedTuple):
    """Mean and standard deviation over the trials, in percent; ``std`` is None for a single trial."""

    mean: float
    std: float | None


class PaperCell(NamedTuple):
    """Accuracy and accuracy drop that the paper reports for one method in one row."""

    accuracy: Spread
    drop: Spread
    bold: bool


PaperTable = dict[tuple[str, tuple[float, float]], dict[str, PaperCell]]


@functools.cache
def paper_table(name: str) -> PaperTable:
    """Return Table 2 or Table 3 of the paper as a dict, keyed by dataset and set priors and then by method.

    >>> paper_table("table3")["mnist", (0.8, 0.2)]["abs"]
    PaperCell(accuracy=Spread(mean=95.19, std=0.12), drop=Spread(mean=0.86, std=0.13), bold=True)
    """
    if name not in ("table2", "table3"):
        raise ValueError(f"name must be 'table2' or 'table3', got {name!r}.")
    text = resources.files("uulearn.reproduction").joinpath("reference.json").read_text(encoding="utf-8")
    return {
        (row["dataset"], (row["set_priors"][0], row["set_priors"][1])): {
            method: PaperCell(Spread(mean, std), Spread(drop, drop_std), bold)
            for method, (mean, std, drop, drop_std, bold) in row["cells"].items()
        }
        for row in json.loads(text)[name]
    }
