"""``uulearn priors``: the shares of positives in two files of rows, estimated without a label."""

from __future__ import annotations

import json
import math
import shlex
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import numpy as np

from uulearn.exceptions import UnidentifiedPriorsWarning
from uulearn.priors import SetPriorsEstimate, estimate_set_priors
from uulearn.priors.mixture import Floats
from uulearn.priors.scoring import FOLDS, read_rows
from uulearn.priors.two_sets import REPLICATES
from uulearn.tabular.matrices import prepare
from uulearn.tabular.schema import Schema, apply_schema

WIDTH = 100


def run_priors(
    set0: Path,
    set1: Path,
    *,
    drop: Sequence[str] = (),
    richer: int = 0,
    seed: int = 0,
    as_json: bool = False,
    sheet: str | None = None,
) -> None:
    """Print both priors with intervals, what holds without assumptions, warnings, how it was done, what is next."""
    X0, X1 = read_both(set0, set1, drop=drop, seed=seed, sheet=sheet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnidentifiedPriorsWarning)  # printed with the rest, from the estimate
        estimate = estimate_set_priors(X0, X1, richer=richer, random_state=seed)
    print(json.dumps(_to_json(estimate), indent=2) if as_json else render(estimate, (set0, set1), X0.shape[1]))


def read_both(
    set0: Path, set1: Path, *, drop: Sequence[str] = (), seed: int = 0, sheet: str | None = None
) -> tuple[Floats, Floats]:
    """Return the rows of two files as numbers: encoded, unless all columns are numbers without missing values."""
    prepared = prepare(set0, set1, None, drop=drop, seed=seed, sheet=sheet)
    if prepared.leaking_columns:
        raise ValueError(f"{prepared.leaking_columns[0].reason} Drop it with --drop.")
    schema = prepared.schema
    assert isinstance(schema, Schema)
    if all(column.kind == "number" and not column.missing for column in schema.columns):
        first, second = (
            np.concatenate([apply_schema(frame, schema, name=source.name).to_numpy() for frame in source.frames()])
            for source in prepared.sources
        )
    else:
        first, second = prepared.matrices(Path(tempfile.gettempdir()))
    return read_rows(first, str(set0)), read_rows(second, str(set1))


def render(estimate: SetPriorsEstimate, paths: tuple[Path, Path], n_columns: int) -> str:
    """The estimate as a page of text."""
    level = f"{100 * estimate.confidence:g}%"
    names = [f"set {which}  {path.name}" for which, path in enumerate(paths)]
    wide = max(len(name) for name in names)
    lines = [f"{'':{wide}}  {'rows':>9}  {'positive':>9}  {level} interval"]
    for name, rows, share, (low, high) in zip(
        names, estimate.sizes, estimate.set_priors, estimate.intervals, strict=True
    ):
        lines.append(f"{name:{wide}}  {rows:>9,}  {_percent(share):>9}  {_percent(low)} to {_percent(high)}")
    known = f"warning: {estimate.concern}" if estimate.concern is not None else _certain(estimate, level)
    texts = [known, _order(estimate), _how(estimate, n_columns)]
    return "\n\n".join(["\n".join(lines), *map(_wrapped, texts), _next(estimate)])


def _order(estimate: SetPriorsEstimate) -> str:
    other = " and ".join(_percent(1 - share) for share in estimate.set_priors)
    return (
        f"Set {estimate.richer} was taken for the richer in positives, which rows cannot tell. If set "
        f"{1 - estimate.richer} is (--richer {1 - estimate.richer}), the shares are {other}."
    )


def _certain(estimate: SetPriorsEstimate, level: str) -> str:
    bounds, richer = estimate.bounds, estimate.richer
    return (
        f"Whatever the classes look like, with {level} confidence each: set {richer} is at least "
        f"{_percent(bounds.richer_at_least)} positive, set {1 - richer} at most {_percent(bounds.poorer_at_most)}, the "
        f"difference at least {100 * bounds.gap_at_least:.1f} points."
    )


def _how(estimate: SetPriorsEstimate, n_columns: int) -> str:
    negative, positive = estimate.bins
    columns = "1 column" if n_columns == 1 else f"{n_columns:,} columns"
    return (
        f"How: a forest on {columns} tells the sets apart, each row scored by trees that have not seen it ({FOLDS} "
        f"folds, AUC {estimate.set_auc:.3f}). The shares follow from how much rarer one set is than the other among "
        f"the rows that look most negative ({negative.rows:,} rows of set {1 - estimate.richer}) and most positive "
        f"({positive.rows:,} of set {estimate.richer}); the intervals from {REPLICATES:,} resamples. Estimates and "
        "intervals suppose that there are rows that only a positive, and rows that only a negative can be; no data can "
        "prove that."
    )


def _next(estimate: SetPriorsEstimate) -> str:
    if estimate.concern is not None:
        return (
            "next: label some rows of each file, drawn at random, and count (0.8 of 50 is known to ±12 points):\n"
            "  from uulearn.priors import priors_from_labels"
        )
    shares = [f"{share:.3f}" for share in estimate.set_priors]
    command = shlex.join(["uulearn", "plan", "--set-priors", *shares, "--sizes", *map(str, estimate.sizes)])
    return (
        f"next: see what these sets can tell about an accuracy\n  {command}\n"
        f"and train: UUClassifier(set_priors=({', '.join(shares)}), target_prior=…).fit_sets(X0, X1)"
    )


def _to_json(estimate: SetPriorsEstimate) -> dict[str, object]:
    """Named fields; null for shares that could not be estimated."""
    unknown = any(math.isnan(share) for share in estimate.set_priors)
    return {
        "set_priors": None if unknown else list(estimate.set_priors),
        "intervals": [list(interval) for interval in estimate.intervals],
        "confidence": estimate.confidence,
        "richer": estimate.richer,
        "bounds": estimate.bounds._asdict(),
        "sizes": list(estimate.sizes),
        "set_auc": estimate.set_auc,
        "class_auc": estimate.class_auc,
        "class_auc_at_least": estimate.class_auc_at_least,
        "identified": estimate.identified,
        "concern": estimate.concern,
    }


def _percent(share: float) -> str:
    return "unknown" if math.isnan(share) else f"{100 * share:.1f}%"


def _wrapped(text: str) -> str:
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
