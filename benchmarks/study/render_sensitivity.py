"""Render the study of wrong priors as a Markdown page with a figure, from the stored pairs of sets.

python benchmarks/study/render_sensitivity.py [results/study/sensitivity.jsonl] [--out results/study/sensitivity.md]
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import records
from records import Record
from render_refinement import mean, signed
from render_tabular import markdown
from sensitivity import SET_PRIORS, STORE

from uulearn.reproduction.experiments import DATASET_NAMES
from uulearn.reproduction.statistics import mean_std
from uulearn.selection.figures import LETTERS
from uulearn.storage import write_atomically

COLORS = {"theta": "#2471a3", "theta_prime": "#ca6f1e", "pi": "#1e8449"}
MEASURES = {"shown": "accuracy shown", "true": "true accuracy"}
NAMES = {**DATASET_NAMES, "breast_cancer": "breast cancer"}


class Alteration(NamedTuple):
    """A prior and its error."""

    parameter: str
    error: float

    @property
    def name(self) -> str:
        """A name such as ``θ − 0.05``."""
        return f"{LETTERS[self.parameter]} {'−' if self.error < 0 else '+'} {abs(self.error):g}"


class Changes:
    """All seeds of one dataset and pair of priors."""

    def __init__(self, pairs: Sequence[Record]) -> None:
        self.pairs = pairs
        self.guesses = [pair["rows"][0] for pair in pairs]
        self._rows = [{Alteration(row["parameter"], row["error"]): row for row in pair["rows"][1:]} for pair in pairs]

    @functools.cached_property
    def alterations(self) -> list[Alteration]:
        """θ, θ′ and π, each ordered by error."""
        found = {alteration for rows in self._rows for alteration in rows}
        return sorted(found, key=lambda one: (list(LETTERS).index(one.parameter), one.error))

    def level(self, measure: str) -> float:
        """Return the mean accuracy at the correct priors, in percent."""
        return 100 * mean_std([guess[measure][0] for guess in self.guesses])[0]

    def points(self, measure: str, alteration: Alteration) -> list[float]:
        """Return the changes in points, one per seed."""
        return [
            100 * (rows[alteration][measure][0] - guess[measure][0])
            for rows, guess in zip(self._rows, self.guesses, strict=True)
            if alteration in rows
        ]

    def differing(self, alteration: Alteration) -> float:
        """Return the mean percentage of held-out rows that are predicted differently."""
        return 100 * mean_std([rows[alteration]["differing"] for rows in self._rows if alteration in rows])[0]


def grouped(stored: records.Stored) -> dict[str, dict[tuple[float, float], Changes]]:
    """Return the pairs by dataset and priors."""
    pairs = list(stored.fits.values())
    if not pairs:
        raise ValueError("no pair of sets is stored; run benchmarks/study/sensitivity.py first.")
    found: dict[str, dict[tuple[float, float], Changes]] = {}
    for name in dict.fromkeys(pair["configuration"]["dataset"] for pair in pairs):
        for priors in SET_PRIORS:
            own = [pair for pair in pairs if _where(pair) == (name, priors)]
            if own:
                found.setdefault(name, {})[priors] = Changes(own)
    return found


def _where(pair: Record) -> tuple[str, tuple[float, ...]]:
    return pair["configuration"]["dataset"], tuple(pair["configuration"]["set_priors"])


# ------------------------------------------------------------------------------------------------------------ the page


def page(found: dict[str, dict[tuple[float, float], Changes]], stored: records.Stored, figure: str) -> str:
    """Return the page: a summary, the figure, and one table per dataset."""
    packages = sorted({" ".join(each) for one in stored.environments.values() for each in one["versions"].items()})
    parts = [
        "# Wrong priors",
        f"{len(stored.fits)} pairs of sets, by `python benchmarks/study/sensitivity.py` and `python "
        "benchmarks/study/render_sensitivity.py`, which describe the comparison. Changes are in points compared with "
        "the correct priors, as means over seeds. *Shown* is the accuracy that you would see: estimated without "
        "labels, with the same wrong priors that were used for training. *True* is the accuracy on labeled test rows. "
        "*Differing* is the percentage of held-out rows whose predicted class changes. "
        f"Versions: {', '.join(packages)}.",
        f"![Change of the accuracy shown and of the true accuracy against the error of a prior]({figure})",
        "Lines are means over seeds, dots are single seeds. The columns have different scales.",
        "## The largest errors",
        outline(found),
    ]
    for name, by_priors in found.items():
        parts += [f"## {NAMES.get(name, name)}", about(by_priors), table(by_priors)]
    return "\n\n".join(parts) + "\n"


def outline(found: dict[str, dict[tuple[float, float], Changes]]) -> str:
    """Return a table of the effect of the largest errors on both accuracies, with one column per dataset."""
    lines = []
    for priors in SET_PRIORS:
        own = [by_priors.get(priors) for by_priors in found.values()]
        levels = ["" if one is None else " / ".join(f"{one.level(name):.1f}%" for name in MEASURES) for one in own]
        lines.append([f"**({_text(priors)})**, correct priors", *levels])
        every = dict.fromkeys(alteration for one in own if one is not None for alteration in one.alterations)
        furthest = max(abs(alteration.error) for alteration in every) if every else 0.0
        for alteration in (one for one in every if abs(one.error) == furthest):
            cells = [
                " / ".join(mean(one.points(name, alteration)) for name in MEASURES)
                if one is not None and alteration in one.alterations
                else ""
                for one in own
            ]
            lines.append([alteration.name, *cells])
    return markdown(["shown / true", *(NAMES.get(name, name) for name in found)], lines)


def _text(priors: tuple[float, float]) -> str:
    return f"{priors[0]:g}, {priors[1]:g}"


def _signed(error: float) -> str:
    return f"{error:+g}".replace("-", "−")


def about(by_priors: dict[tuple[float, float], Changes]) -> str:
    """Return a sentence about the number of rows, the class prior and the seeds."""
    pair = next(iter(by_priors.values())).pairs[0]
    seeds = max(len(changes.pairs) for changes in by_priors.values())
    return (
        f"{pair['configuration']['rows']:,} rows per set, {pair['held_out'][0]:,} of them held out; "
        f"{pair['test_rows']:,} test rows; π = {pair['rows'][0]['target_prior']:.2f}; {seeds} "
        f"{'seed' if seeds == 1 else 'seeds (lowest and highest in parentheses)'}."
    )


def table(by_priors: dict[tuple[float, float], Changes]) -> str:
    """Return a table with one line per changed prior and three columns per pair of priors."""
    heads = ["", *(f"{head} at ({_text(priors)})" for priors in by_priors for head in ("shown", "true", "differing"))]
    first = ["correct priors"]
    for changes in by_priors.values():
        first += [f"{changes.level('shown'):.1f}%", f"{changes.level('true'):.1f}%", ""]
    lines = [first]
    for alteration in dict.fromkeys(one for changes in by_priors.values() for one in changes.alterations):
        cells = [alteration.name]
        for changes in by_priors.values():
            if alteration not in changes.alterations:
                cells += ["", "", ""]
                continue
            moved = [ranged(changes.points(measure, alteration)) for measure in MEASURES]
            cells += [*moved, f"{changes.differing(alteration):.1f}%"]
        lines.append(cells)
    return markdown(heads, lines)


def ranged(points: Sequence[float]) -> str:
    """Return the mean over seeds and their range.

    Examples
    --------
    >>> ranged([1.0, -2.0]), ranged([0.25])
    ('−0.5 (−2.0 to +1.0)', '+0.2')
    """
    reach = f" ({signed(min(points))} to {signed(max(points))})" if len(points) > 1 else ""
    return mean(points) + reach


# ---------------------------------------------------------------------------------------------------------- the figure


def draw(found: dict[str, dict[tuple[float, float], Changes]], path: Path) -> None:
    """Draw the change of the reported and of the true accuracy for each pair of priors, one row per dataset."""
    from matplotlib.figure import Figure

    columns = [(priors, measure) for priors in SET_PRIORS for measure in MEASURES]
    figure = Figure(figsize=(8, 0.9 + 1.75 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), len(columns), squeeze=False, sharex=True, sharey="col")
    for row, (name, by_priors) in zip(axes, found.items(), strict=True):
        row[0].set_ylabel(NAMES.get(name, name), fontsize=10)
        for axis, (priors, measure) in zip(row, columns, strict=True):
            if priors in by_priors:
                draw_panel(axis, by_priors[priors], measure)
    for axis, (priors, measure) in zip(axes[0], columns, strict=True):
        axis.set_title(f"{MEASURES[measure]}\nat ({_text(priors)})", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("error of the prior", fontsize=9)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.supylabel("change against the correct priors, points", fontsize=10)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130, format=path.suffix.lstrip(".")))


def draw_panel(axis: Any, changes: Changes, measure: str) -> None:
    """Draw one line per prior through its errors and zero, and the seeds as faint dots."""
    axis.axhline(0, color="#b0b0b0", lw=0.8, zorder=0)
    for parameter, letter in LETTERS.items():
        own = [one for one in changes.alterations if one.parameter == parameter]
        seeds = {one.error: changes.points(measure, one) for one in own}
        means = sorted([(0.0, 0.0), *((error, sum(points) / len(points)) for error, points in seeds.items())])
        axis.plot(*zip(*means, strict=True), "o-", color=COLORS[parameter], ms=3.5, lw=1.6, label=letter)
        for error, points in seeds.items():
            axis.plot([error] * len(points), points, ".", color=COLORS[parameter], ms=3, alpha=0.35)
    errors = sorted({one.error for one in changes.alterations})
    axis.set_xticks(errors, [_signed(error) if error in (errors[0], errors[-1]) else "" for error in errors])
    axis.tick_params(labelsize=8)
    axis.grid(axis="y", color="#e6e6e6", lw=0.6)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, nargs="?", default=STORE)
    parser.add_argument("--out", type=Path, help="default: next to the store, with the suffix .md, like the figure")
    asked = parser.parse_args(arguments)
    stored = records.read([asked.store])
    try:
        found = grouped(stored)
    except ValueError as error:
        sys.exit(str(error))
    out = asked.out or asked.store.with_suffix(".md")
    figure = out.with_suffix(".png")
    draw(found, figure)
    out.write_text(page(found, stored, figure.name), encoding="utf-8")
    print(f"written: {out} and {figure}")


if __name__ == "__main__":
    main()
