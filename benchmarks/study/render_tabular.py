"""Render the study of tables as a Markdown page, from the stored fits.

python benchmarks/study/render_tabular.py [results/study/tabular.jsonl …] [--out results/study/tabular.md]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import contenders as field
import records
import tables
from comparison import LEAST_SEEDS, Cell, Comparison, Spread, compare, significant_sign
from contenders import Contender

from uulearn.reproduction.statistics import mean_std

STORE = Path(__file__).resolve().parents[2] / "results" / "study" / "tabular.jsonl"
TITLES = {"abs": "ABS", "relu": "ReLU", "leaky_relu": "leaky ReLU"}
MINUS = "−"


def page(stored: records.Stored, base: Mapping[str, Any] | None = None) -> str:
    """Return the complete page."""
    found = {model: compare(stored.fits.values(), model, base) for model in field.MODELS}
    comparisons = {model: own for model, own in found.items() if own is not None}
    if not comparisons:
        raise ValueError("no fit of the default is stored; run benchmarks/study/tabular.py with this version first.")
    parts = [preface(stored)]
    for model, comparison in comparisons.items():
        parts += [f"## Model `{model}`", summary(comparison), against_rivals(comparison), against_boosting(comparison)]
    for model, comparison in comparisons.items():
        parts += [f"## Every cell, model `{model}`", details(comparison)]
    return "\n\n".join(parts) + "\n"


def preface(stored: records.Stored) -> str:
    """Return a description of the study and of the tables."""
    cells = {(one["dataset"], one["rows"]) for one in (fit["configuration"] for fit in stored.fits.values())}
    seeds = {fit["configuration"]["seed"] for fit in stored.fits.values()}
    names = [name for name in tables.NAMES if name in {dataset for dataset, _ in cells}]
    sizes = [f"{name} {', '.join(f'{rows:,}' for own, rows in sorted(cells) if own == name)}" for name in names]
    packages = sorted({" ".join(each) for one in stored.environments.values() for each in one["versions"].items()})
    machines = sorted({one["machine"]["processor"] for one in stored.environments.values()})
    return f"""# Small tables

Two unlabeled sets are drawn from each of {len(names)} tables. Numbers are test accuracy in percent, on rows that are in neither set.
Made from {len(stored.fits):,} fits, {len(seeds)} seeds at most for each, by `python benchmarks/study/tabular.py` and
`python benchmarks/study/render_tabular.py`, which describe the contenders. Versions: {", ".join(packages)}; {", ".join(machines)}.

- **Rows per set**: {"; ".join(sizes)}. If a table has too few rows for 300, 1,000 or 5,000, the largest possible set is used.
- **Within noise**: not significantly worse than the best (paired t-test over seeds, 5%). Only cells with at least three
  seeds are tested. With so few seeds the test misses many differences, so read the mean differences (with standard
  errors over tables) before the counts.
- **Gap closed**: how much of the gap between always predicting the more frequent class and training the same model with
  labels is closed. The mean is over cells in which labels gain at least five points."""  # noqa: E501


# ------------------------------------------------------------------------------------------------------------- summary


def summary(comparison: Comparison) -> str:
    """Return a table with one line per contender."""
    default, rivals = comparison.default, comparison.rivals
    lines = []
    for one in comparison.columns:
        others = [rival for rival in rivals if rival.key != one.key]
        everyone = [other for other in comparison.everyone if other.key != one.key]
        differences = ["", "", ""]
        if one is not default:
            standing = comparison.standing(one, default)
            differences = [
                points(comparison.mean_difference(one, default, lambda cell: cell.set_priors == (0.8, 0.2))),
                points(comparison.mean_difference(one, default, lambda cell: cell.set_priors == (0.6, 0.4))),
                f"{standing.better} / {standing.level} / {standing.worse}",
            ]
        share = comparison.share_of_distance(one)
        lines.append(
            [
                title(one),
                among(comparison.seeds([one, default])),
                of(comparison.level_with_best(one, others)),
                of(comparison.level_with_best(one, everyone)),
                *differences,
                "" if share is None else f"{100 * share:.0f}%",
                f"{comparison.seconds[one.key]:.1f}",
            ]
        )
    heads = [
        "", "seeds", "best or within noise of the paper's five and logistic regression", "of everyone",
        "points over the default at (0.8, 0.2)", "at (0.6, 0.4)", "better / equal / worse than the default, cells",
        "gap closed", "seconds per fit",
    ]  # fmt: skip
    return markdown(heads, lines)


def of(verdicts: Mapping[Cell, bool]) -> str:
    """Return a count such as "3 of 5"."""
    return f"{sum(verdicts.values())} of {len(verdicts)}"


def among(seeds: tuple[int, int]) -> str:
    """Return a range from the smallest to the largest number.

    Examples
    --------
    >>> among((3, 3)), among((2, 3))
    ('3', '2 to 3')
    """
    fewest, most = seeds
    return str(most) if fewest == most else f"{fewest} to {most}"


def points(spread: Spread | None) -> str:
    """Return a difference in percentage points, with its standard error over tables.

    Examples
    --------
    >>> points(Spread(-0.0123, 0.004)), points(Spread(0.02, None))
    ('−1.2 (0.4)', '+2.0')
    """
    if spread is None:
        return ""
    error = "" if spread.error is None else f" ({100 * spread.error:.1f})"
    return signed(spread.mean) + error


def signed(difference: float) -> str:
    """Return a difference in points, with its sign."""
    return f"{100 * difference:+.1f}".replace("-", MINUS)


def against_rivals(comparison: Comparison) -> str:
    """Describe the cells in which the default is not best."""
    default, rivals = comparison.default, comparison.rivals
    verdicts = comparison.level_with_best(default, rivals)
    losses = []
    for cell in (cell for cell, good in verdicts.items() if not good):
        own, *theirs = comparison.means(cell, default, *rivals)
        winner, best = max(zip(rivals, theirs, strict=True), key=lambda pair: pair[1])
        losses.append(f"{where(cell)} ({title(winner)}, {signed(best - own)})")
    text = (
        "The default is best or within noise of the paper's five and logistic regression in "
        f"{of(verdicts)} cells, on {among(comparison.seeds([default, *rivals]))} seeds per cell."
    )
    return text + (f" The exceptions are: {'; '.join(losses)}." if losses else "")


def against_boosting(comparison: Comparison) -> str:
    """Count the cells in which gradient boosting on the sets is better than the default, and list all differences."""
    boosting = next((one for one in comparison.columns if one.name == field.BOOSTING), None)
    if boosting is None:
        return "Gradient boosting was not run."
    default = comparison.default
    found = comparison.differences(boosting, default)
    means = {cell: statistics.fmean(own) for cell, own in found.items()}
    better = sum(mean > 0 for mean in means.values())
    text = (
        f"Gradient boosting on the sets is more accurate than the default in {better} of {len(means)} cells. "
        "The differences, in points (\\* significant):"
    )
    by_table: dict[tuple[str, int], dict[tuple[float, ...], str]] = {}
    for cell, mean in means.items():
        by_table.setdefault((cell.dataset, cell.rows), {})[cell.set_priors] = signed(mean) + star(found[cell])
    priors = list(dict.fromkeys(cell.set_priors for cell in means))
    lines = [[name, f"{rows:,}", *(own.get(pair, "") for pair in priors)] for (name, rows), own in by_table.items()]
    heads = ["table", "rows", *("({:g}, {:g})".format(*pair) for pair in priors)]
    return f"{text}\n\n{markdown(heads, lines)}"


def star(differences: Sequence[float]) -> str:
    """Return a star for a significant difference."""
    return "\\*" if len(differences) >= LEAST_SEEDS and significant_sign(differences) else ""


def where(cell: Cell) -> str:
    """Return a short description of a cell."""
    return f"{cell.dataset} {cell.rows:,} at ({cell.set_priors[0]:g}, {cell.set_priors[1]:g})"


# ------------------------------------------------------------------------------------------------------------- details


def details(comparison: Comparison) -> str:
    """Return a table of mean accuracies and standard errors per cell; bold means best or within noise."""
    columns = comparison.columns
    lines = []
    for cell, trials in comparison.trials.items():
        best = comparison.best(cell)
        figures = [accuracy(trials.get(one.key, {}), one.key in best) for one in [*columns, comparison.supervised]]
        lines.append([cell.dataset, f"{cell.rows:,}", "{:g}, {:g}".format(*cell.set_priors), *figures])
    return markdown(["table", "rows", "θ, θ′", *map(title, columns), "with labels"], lines)


def accuracy(trials: Mapping[int, float], is_best: bool) -> str:
    """Return the mean and standard error in percent.

    Examples
    --------
    >>> accuracy({0: 0.9, 1: 0.92}, True), accuracy({0: 0.9}, False), accuracy({}, False)
    ('**91.0 (1.0)**', '90.0', '')
    """
    if not trials:
        return ""
    mean, deviation = mean_std(list(trials.values()))
    text = f"{100 * mean:.1f}"
    if deviation is not None:
        text += f" ({100 * deviation / len(trials) ** 0.5:.1f})"
    return f"**{text}**" if is_best else text


def title(contender: Contender) -> str:
    """Return the header of a column."""
    return TITLES.get(contender.name, contender.name)


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with right-aligned numbers."""
    rule = [":--", *("--:" for _ in heads[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, rule, *lines])


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", type=Path, nargs="*", default=[STORE], help="files of fits, .jsonl or .jsonl.gz")
    parser.add_argument("--out", type=Path, help="default: tabular.md next to the first store")
    asked = parser.parse_args(arguments)
    missing = [path for path in asked.stores if not path.exists()]
    if missing:
        sys.exit(f"{missing[0]} does not exist; run benchmarks/study/tabular.py first.")
    try:
        text = page(records.read(asked.stores))
    except ValueError as error:
        sys.exit(str(error))
    out = asked.out or asked.stores[0].parent / "tabular.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(f"written: {out}")


if __name__ == "__main__":
    main()
