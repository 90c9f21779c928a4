"""Render the study of data frames as a Markdown page with a figure, from the stored fits.

A *cell* is a table, a way to draw the sets, and a mean size of the sets. The summary and the figure use only the cells
and seeds for which all contenders are stored, so that every contender is measured on the same rows.

python benchmarks/study/render_tables.py [results/study/tables.jsonl …] [--contenders NAME …] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import frames
import records
from comparison import LEAST_SEEDS, significant_sign
from records import Record
from render_tabular import MINUS, markdown
from resuming import STUDY
from table_contenders import SUPERVISED
from tables_study import DRAWS, STORE

from uulearn.reproduction.store import key

FIGURE = "tables.png"
TITLES = {"0.8,0.2": "(0.8, 0.2)", "0.6,0.4": "(0.6, 0.4)", "4:1": "(0.8, 0.2), sizes 4:1"}


class Cell(NamedTuple):
    """A table, a way to draw the sets, and their mean size."""

    dataset: str
    draw: str
    rows: int

    @property
    def place(self) -> tuple[int, int, int]:
        """The sort key for the order of the page."""
        return frames.NAMES.index(self.dataset), self.rows, list(DRAWS).index(self.draw)


Fits = dict[Cell, dict[str, dict[int, Record]]]
"""Records by cell, name of the contender and seed."""


class Summary(NamedTuple):
    """Results of a contender over the common cells and seeds; differences are in points of accuracy."""

    accuracy: float
    behind: float
    """Mean over cells of the difference to the best contender of the cell; 0 if it is always best."""
    worst: float
    """The largest difference to the best contender of a cell, a negative number."""
    level: int
    """Number of cells in which it is best or within noise of the best."""
    cpu: float
    """Geometric mean of the CPU seconds per fit."""
    covered: tuple[int, int] | None
    """Number of intervals that contain the measured accuracy, and number of intervals."""


# ---------------------------------------------------------------------------------------------------------- statistics


def collect(stored: Iterable[Record], chosen: Sequence[str] | None = None) -> Fits:
    """Group records by cell, contender and seed.

    A contender that was stored with several parameters or tags is split: the parameters of the latest fit keep the
    name, and others get the start of their hash.
    """
    named: dict[tuple[str, str | None], dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in stored:
        one = record["configuration"]
        named[one["contender"], one.get("tag")][key(one["parameters"])].append(record)
    fits: Fits = defaultdict(lambda: defaultdict(dict))
    for (contender, tag), variants in named.items():
        latest = max(variants, key=lambda own: max(record["finished"] for record in variants[own]))
        for own, found in variants.items():
            name = contender + (f" [{tag}]" if tag else "") + ("" if own == latest else f" ({own[:6]})")
            if chosen and name not in chosen:
                continue
            for record in found:
                one = record["configuration"]
                fits[Cell(one["dataset"], one["draw"], one["rows"])][name][one["seed"]] = record
    return {cell: dict(fits[cell]) for cell in sorted(fits, key=lambda cell: cell.place)}


def contender_names(fits: Fits) -> list[str]:
    """Return all contenders in the order of their first fit, those with labels last."""
    names = list(dict.fromkeys(name for found in fits.values() for name in found))
    return [name for name in names if not uses_labels(name)] + [name for name in names if uses_labels(name)]


def uses_labels(name: str) -> bool:
    """Return whether a contender is trained with labels."""
    return name.startswith(SUPERVISED)


def common(fits: Fits) -> Fits:
    """Return the cells and seeds for which all contenders are stored."""
    names = set(contender_names(fits))
    found: Fits = {}
    for cell, own in fits.items():
        if names <= own.keys():
            seeds = set.intersection(*(set(own[name]) for name in names))
            if seeds:
                found[cell] = {name: {seed: own[name][seed] for seed in sorted(seeds)} for name in own}
    return found


def mean_accuracy(trials: Mapping[int, Record]) -> float:
    """Return the mean accuracy over seeds."""
    return statistics.fmean(record["accuracy"] for record in trials.values())


def best_without_labels(found: Mapping[str, Mapping[int, Record]]) -> str | None:
    """Return the contender of a cell with the highest mean accuracy, among those without labels."""
    names = [name for name in found if not uses_labels(name)]
    return max(names, key=lambda name: mean_accuracy(found[name])) if names else None


def is_level(own: Mapping[int, Record], best: Mapping[int, Record]) -> bool:
    """Return whether a contender is not significantly worse than the best one (paired t-test over seeds).

    With fewer than three seeds, a contender is level if its mean accuracy is not lower.
    """
    seeds = sorted(own.keys() & best.keys())
    differences = [own[seed]["accuracy"] - best[seed]["accuracy"] for seed in seeds]
    if len(differences) < LEAST_SEEDS:
        return bool(differences) and statistics.fmean(differences) >= 0
    return significant_sign(differences) >= 0


def summarize(fits: Fits) -> dict[str, Summary]:
    """Return the summary of every contender; ``fits`` must contain all contenders in every cell."""
    found = {}
    for name in contender_names(fits):
        behind, level, times, inside = [], 0, [], []
        for own in fits.values():
            best = own[best_without_labels(own) or name]
            behind.append(mean_accuracy(own[name]) - mean_accuracy(best))
            level += is_level(own[name], best)
            times += [max(record["cpu_seconds"], 1e-3) for record in own[name].values()]
            inside += [contains(record) for record in own[name].values() if record["estimate"] is not None]
        found[name] = Summary(
            statistics.fmean(mean_accuracy(own[name]) for own in fits.values()), statistics.fmean(behind), min(behind),
            level, statistics.geometric_mean(times), (sum(inside), len(inside)) if inside else None,
        )  # fmt: skip
    return found


def contains(record: Record) -> bool:
    """Return whether the interval estimated without labels contains the accuracy measured with labels."""
    low, high = record["estimate"]["accuracy"]["interval"]
    return bool(low <= record["accuracy"] <= high)


# ---------------------------------------------------------------------------------------------------------------- page


def page(stored: records.Stored, fits: Fits) -> str:
    """Return the complete page."""
    shared = common(fits)
    if not shared:
        raise ValueError("no cell has a fit of every contender; run more fits, or choose fewer with --contenders.")
    environments = stored.environments.values()
    packages = sorted({" ".join(each) for one in environments for each in one["versions"].items()})
    machines = sorted({f"{one['machine']['processor']}, {one['machine']['cores']} cores" for one in environments})
    n_fits = sum(len(trials) for own in fits.values() for trials in own.values())
    seeds = sorted({len(trials) for own in shared.values() for trials in own.values()})
    return f"""# Tables with numbers and categories

Accuracy in percent on labeled test rows, and CPU seconds of a fit with one thread. Made from {n_fits:,} fits by
`python benchmarks/study/tables_study.py` and `python benchmarks/study/render_tables.py`, which describe the contenders.
Versions: {", ".join(packages)}; {"; ".join(machines)}.

## All cells

{len(shared)} cells of {len({cell.dataset for cell in shared})} tables have fits of all contenders; seeds per cell:
{" or ".join(map(str, seeds))}. "Behind the best" is the mean difference to the best contender of the cell that is
trained without labels; "level" counts the cells in which a contender is best or not significantly worse (paired t-test
over at least {LEAST_SEEDS} seeds, 5%). "Covered" counts the fits whose accuracy, measured with labels, is in the 95%
interval estimated without labels.

{summary_table(shared)}

![Accuracy against CPU time]({FIGURE})

{parts(shared)}

## Every cell

Mean ± standard deviation over seeds, and mean CPU seconds. Bold: the best without labels.

{details(fits)}
"""


def summary_table(fits: Fits) -> str:
    """Return a table with one line per contender, the best first."""
    lines = []
    for name, one in sorted(summarize(fits).items(), key=lambda item: -item[1].behind):
        covered = "" if one.covered is None else f"{one.covered[0]} of {one.covered[1]}"
        lines.append(
            [name, f"{100 * one.accuracy:.1f}", points(one.behind), points(one.worst), f"{one.level} of {len(fits)}",
             f"{one.cpu:.2g}", covered]
        )  # fmt: skip
    heads = ["", "accuracy", "behind the best", "worst cell", "level", "CPU seconds", "covered"]
    return markdown(heads, lines)


def parts(fits: Fits) -> str:
    """Return the mean difference to the best contender for each way to draw the sets and each range of sizes."""
    groups: dict[str, Fits] = defaultdict(dict)
    for cell, own in fits.items():
        groups[TITLES[cell.draw]][cell] = own
        groups[size_range(cell.rows)][cell] = own
    columns = {title: summarize(groups[title]) for title in sorted(groups, key=_group_place)}
    lines = [
        [name, *(f"{points(own[name].behind)}, {own[name].cpu:.2g} s" for own in columns.values())]
        for name in contender_names(fits)
    ]
    heads = [f"{title} ({len(groups[title])} cells)" for title in columns]
    return "Behind the best, and CPU seconds:\n\n" + markdown(["", *heads], lines)


def size_range(rows: int) -> str:
    """Return the range of the mean size of the sets."""
    return "up to 150 rows" if rows <= 150 else "up to 700 rows" if rows <= 700 else "more rows"


def _group_place(title: str) -> int:
    return [*TITLES.values(), "up to 150 rows", "up to 700 rows", "more rows"].index(title)


def points(difference: float) -> str:
    """Return a difference in points.

    >>> points(-0.0123), points(0.0)
    ('−1.2', '0.0')
    """
    return f"{100 * difference:.1f}".replace("-", MINUS)


def details(fits: Fits) -> str:
    """Return a table with one line per cell."""
    names = contender_names(fits)
    lines = []
    for cell, found in fits.items():
        best = best_without_labels(found)
        cells = [entry(found.get(name, {}), name == best) for name in names]
        lines.append([cell.dataset, f"{cell.rows:,}", TITLES[cell.draw], *cells])
    return markdown(["table", "rows", "sets", *names], lines)


def entry(trials: Mapping[int, Record], is_best: bool) -> str:
    """Return the mean, the standard deviation and the mean CPU seconds of a contender in a cell.

    >>> entry({0: {"accuracy": 0.9, "cpu_seconds": 1.0}, 1: {"accuracy": 0.92, "cpu_seconds": 2.0}}, True)
    '**91.0 ± 1.4**, 1.5 s'
    """
    if not trials:
        return ""
    values = [record["accuracy"] for record in trials.values()]
    text = f"{100 * statistics.fmean(values):.1f}"
    if len(values) > 1:
        text += f" ± {100 * statistics.stdev(values):.1f}"
    seconds = statistics.fmean(record["cpu_seconds"] for record in trials.values())
    return f"{f'**{text}**' if is_best else text}, {seconds:.2g} s"


# -------------------------------------------------------------------------------------------------------------- figure


def draw(fits: Fits, path: Path) -> None:
    """Draw the difference to the best contender of a cell against CPU time, one panel per way to draw the sets."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator

    shown = [which for which in DRAWS if any(cell.draw == which for cell in fits)]
    figure, axes = plt.subplots(1, len(shown), figsize=(1 + 4.6 * len(shown), 4.6), sharey=True, squeeze=False)
    colors = {name: f"C{number % 10}" for number, name in enumerate(contender_names(fits))}
    for axis, which in zip(axes[0], shown, strict=True):
        own = {cell: found for cell, found in fits.items() if cell.draw == which}
        for name, one in summarize(own).items():
            gaps = [100 * (mean_accuracy(found[name]) - mean_accuracy(found[best_without_labels(found) or name]))
                    for found in own.values()]  # fmt: skip
            error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
            marker = "^" if uses_labels(name) else "o"
            axis.errorbar(one.cpu, 100 * one.behind, error, fmt=marker, color=colors[name], label=name, capsize=2)
        axis.set(xscale="log", title=f"{TITLES[which]}, {len(own)} cells", xlabel="CPU seconds per fit")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_locator(LogLocator(subs=()))
        axis.axhline(0, color="gray", linewidth=0.8)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("points behind the best of the cell")
    handles, labels = axes[0][0].get_legend_handles_labels()
    columns = 3 if len(shown) > 1 else 2
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", type=Path, nargs="*", default=[STORE], help="files of fits, .jsonl or .jsonl.gz")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--out", type=Path, default=STUDY, help="folder for tables.md and tables.png")
    asked: Any = parser.parse_args(arguments)
    missing = [path for path in asked.stores if not path.exists()]
    if missing:
        sys.exit(f"{missing[0]} does not exist; run benchmarks/study/tables_study.py first.")
    try:
        stored = records.read(asked.stores)
        fits = collect(stored.fits.values(), asked.contenders)
        text = page(stored, fits)
    except ValueError as error:
        sys.exit(str(error))
    asked.out.mkdir(parents=True, exist_ok=True)
    draw(common(fits), asked.out / FIGURE)
    (asked.out / "tables.md").write_text(text, encoding="utf-8")
    print(f"written: {asked.out / 'tables.md'}, {asked.out / FIGURE}")


if __name__ == "__main__":
    main()
