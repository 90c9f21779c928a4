"""``uulearn priors``: estimate the class priors of two files of unlabeled rows."""

from __future__ import annotations

import json
import math
import shlex
import warnings
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from uulearn.cli import fast_imports
from uulearn.cli.options import AsJson, Drop, Sheet, argument, option

if TYPE_CHECKING:
    from uulearn.priors import SetPriorsEstimate

WIDTH = 100
"""Width of printed paragraphs, in characters."""


def priors(
    set0: Annotated[Path, argument("A", "Rows of set 0, in any format that fit reads.")],
    set1: Annotated[Path, argument("B", "Rows of set 1, with the same columns.")],
    drop: Drop = None,
    higher_prior_set: Annotated[
        int, option("0|1", "The set with the higher class prior: 0 for A, 1 for B.", min=0, max=1)
    ] = 0,
    seed: Annotated[int, option("N", "Random seed.", min=0)] = 0,
    sheet: Sheet = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the class priors of two unlabeled sets."""
    with fast_imports():
        from uulearn.app.priors import read_sets
        from uulearn.exceptions import UnidentifiedPriorsWarning
        from uulearn.priors import estimate_set_priors

    X0, X1 = read_sets(set0, set1, drop=tuple(drop or ()), seed=seed, sheet=sheet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnidentifiedPriorsWarning)  # the output below includes it
        estimate = estimate_set_priors(X0, X1, higher_prior_set=higher_prior_set, random_state=seed)
    typer.echo(json.dumps(_to_json(estimate), indent=2) if as_json else render(estimate, (set0, set1), X0.shape[1]))


def render(estimate: SetPriorsEstimate, paths: tuple[Path, Path], n_columns: int) -> str:
    """Format the estimate as text."""
    from uulearn.io.formats import printable

    level = f"{100 * estimate.confidence:g}%"
    names = [f"set {which}  {printable(path.name)}" for which, path in enumerate(paths)]
    width = max(len(name) for name in names)
    lines = [f"{'':{width}}  {'rows':>9}  {'positive':>9}  {level} interval"]
    for name, rows, prior, (low, high) in zip(
        names, estimate.sizes, estimate.set_priors, estimate.intervals, strict=True
    ):
        lines.append(f"{name:{width}}  {rows:>9,}  {_percent(prior):>9}  {_percent(low)} to {_percent(high)}")
    bounds = f"warning: {estimate.concern}" if estimate.concern is not None else _bounds(estimate, level)
    texts = [bounds, _order(estimate), _explanation(estimate, n_columns)]
    paragraphs = [fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) for text in texts]
    return "\n\n".join(["\n".join(lines), *paragraphs, _next_step(estimate, paths)])


def _order(estimate: SetPriorsEstimate) -> str:
    higher, exchanged = estimate.higher_prior_set, " and ".join(_percent(1 - prior) for prior in estimate.set_priors)
    return (
        f"The estimates assume that set {higher} has the higher class prior, which unlabeled rows cannot confirm. If "
        f"set {1 - higher} has the higher prior (--higher-prior-set {1 - higher}), the class priors are {exchanged}."
    )


def _bounds(estimate: SetPriorsEstimate, level: str) -> str:
    bounds, higher = estimate.bounds, estimate.higher_prior_set
    return (
        f"Bounds that need no assumption about the classes (each with {level} confidence): the class prior of set "
        f"{higher} is at least {_percent(bounds.higher_prior_at_least)}, the prior of set {1 - higher} is at most "
        f"{_percent(bounds.lower_prior_at_most)}, and they differ by at least {100 * bounds.gap_at_least:.1f} points."
    )


def _explanation(estimate: SetPriorsEstimate, n_columns: int) -> str:
    from uulearn.priors.scoring import FOLDS
    from uulearn.priors.two_sets import REPLICATES

    (negative, positive), higher = estimate.bins, estimate.higher_prior_set
    columns = "1 column" if n_columns == 1 else f"{n_columns:,} columns"
    return (
        f"Method: a random forest on {columns} separates the two sets and scores each row out of fold ({FOLDS} folds, "
        f"AUC {estimate.set_auc:.3f}). The class priors are estimated from the ratio of the two sets among the rows "
        f"that look most negative ({negative.rows:,} rows of set {1 - higher}) and most positive ({positive.rows:,} "
        f"rows of set {higher}). The intervals are computed from {REPLICATES:,} resamples. The method assumes that "
        "some rows can only be positive and others can only be negative, which cannot be verified from unlabeled data."
    )


def _next_step(estimate: SetPriorsEstimate, paths: tuple[Path, Path]) -> str:
    from uulearn.io.formats import printable

    if estimate.concern is not None:
        return (
            "next: label some random rows of each file and count the positives (with 50 labels, a prior of 0.8 is "
            "estimated to within ±12 points):\n  from uulearn.priors import priors_from_labels"
        )
    values = [f"{prior:.3f}" for prior in estimate.set_priors]
    command = shlex.join(["uulearn", "plan", "--set-priors", *values, "--sizes", *map(str, estimate.sizes)])
    files = printable(shlex.join(map(str, paths)))
    return (
        f"next: check how precisely the accuracy can be estimated from these sets\n  {command}\n"
        f"and train: uulearn fit {files} --set-priors {' '.join(values)} --target-prior …"
    )


def _to_json(estimate: SetPriorsEstimate) -> dict[str, object]:
    """Return a dict of the results; ``set_priors`` is None if the class priors cannot be estimated."""
    unknown = any(math.isnan(prior) for prior in estimate.set_priors)
    names = ("intervals", "confidence", "higher_prior_set", "sizes", "set_auc", "class_auc", "class_auc_at_least")
    return {
        "set_priors": None if unknown else estimate.set_priors,
        **{name: getattr(estimate, name) for name in (*names, "identified", "concern")},
        "bounds": estimate.bounds._asdict(),
    }


def _percent(fraction: float) -> str:
    return "unknown" if math.isnan(fraction) else f"{100 * fraction:.1f}%"
