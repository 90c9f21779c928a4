"""Measure how often the intervals of `uulearn.priors` contain the true class priors, on simulated mixtures.

There are three parts, all with classes of known densities (``tests/helpers/prior_simulation.py``):

* ``set priors``: `estimate_set_priors_from_scores` on scores of two sets; bias, standard deviation, coverage and width
  of the 95% intervals, how often all three bounds hold, how often the warning is raised. For some cases also the
  coverage of plain percentiles of the same resamples, without the extrapolation of the ratio;
* ``rows``: `estimate_set_priors` on rows with five columns and logistic regression as the scorer;
* ``target prior``: `estimate_target_prior` on scores of the target rows and of both sets.

Every case is stored when it is finished and is not repeated.

    python benchmarks/study/prior_coverage.py [--minutes 3] [--quick]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from records import Record
from resuming import STUDY, add_options, complete, out_of
from sklearn.linear_model import LogisticRegression

from uulearn.priors import best_bin
from uulearn.priors.mixture import resample, solve_proportions
from uulearn.reproduction.store import normalized

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from helpers.prior_simulation import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    MIXTURES,
    TARGETS,
    out_of_fold_coverage,
    simulate,
    simulate_target,
)

STORE = STUDY / "prior_coverage.jsonl"
SET_PRIORS, ROWS, TARGET_PRIOR = "set priors", "rows", "target prior"
DRAWS = {SET_PRIORS: 400, ROWS: 200, TARGET_PRIOR: 1000}
REPLICATES = 300
NAMES = list(MIXTURES)
CASES = [
    *((name, (0.8, 0.2), 5000) for name in NAMES),
    *((name, (0.8, 0.2), 1000) for name in NAMES[:6]),
    *((name, priors, 5000) for priors in ((0.6, 0.4), (0.9, 0.5), (1.0, 0.3)) for name in NAMES[1:5]),
]
PLAIN = [(name, (0.8, 0.2), 5000) for name in NAMES[:5]]
"""Cases for which the coverage of plain percentiles is also measured."""


def planned(quick: bool = False) -> list[Record]:
    """Return the configurations of all cases."""
    draws = dict.fromkeys(DRAWS, 4) if quick else DRAWS
    cases = CASES[:1] if quick else CASES
    configurations: list[dict[str, Any]] = [
        {
            "part": SET_PRIORS, "classes": name, "set_priors": priors, "rows": rows, "draws": draws[SET_PRIORS],
            "replicates": REPLICATES, "plain": (name, priors, rows) in PLAIN,
        }
        for name, priors, rows in cases
    ]  # fmt: skip
    configurations.append(
        {"part": ROWS, "scorer": "logistic regression", "set_priors": (0.8, 0.2), "rows": 1000, "draws": draws[ROWS]}
    )
    for priors, target_prior, sizes, distance in TARGETS[:1] if quick else TARGETS:
        configurations.append(
            {
                "part": TARGET_PRIOR,
                "set_priors": priors,
                "target_prior": target_prior,
                "sizes": sizes,
                "distance": distance,
                "draws": draws[TARGET_PRIOR],
            }
        )
    return [normalized(one) for one in configurations]


def fit(configuration: Record) -> Record:
    """Simulate one case and return its record."""
    part, draws, set_priors = configuration["part"], configuration["draws"], tuple(configuration["set_priors"])
    if part == ROWS:
        covered, bias = out_of_fold_coverage(draws, configuration["rows"], LogisticRegression())
        return {"covered": rounded(covered), "bias": rounded(bias)}
    if part == TARGET_PRIOR:
        found = simulate_target(
            set_priors, configuration["target_prior"], configuration["sizes"], configuration["distance"], draws
        )
        names = ("bias", "deviation", "standard_error", "covered", "false_alarms")
        return dict(zip(names, rounded(found), strict=True))
    classes, rows = MIXTURES[configuration["classes"]], configuration["rows"]
    simulated = simulate(classes, set_priors, rows, draws)
    measured = {name: rounded(value) for name, value in simulated._asdict().items()}
    if configuration["plain"]:
        measured["plain_covered"] = plain_coverage(classes, set_priors, rows, draws)
    return measured


def plain_coverage(classes: Any, set_priors: tuple[float, ...], rows: int, draws: int) -> float:
    """Return the coverage of θ by plain percentiles of the resamples, without the extrapolation of the ratio."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(draws):
        higher, lower = (classes(rng, rng.random(rows) < prior) for prior in set_priors)
        ends = best_bin(-lower, -higher), best_bin(higher, lower)
        theta, _ = solve_proportions(*(end.high for end in resample(higher, lower, *ends, REPLICATES, rng)))
        low, high = np.quantile(theta, [0.025, 0.975])
        covered += low <= set_priors[0] <= high
    return round(covered / draws, 5)


def rounded(values: Any) -> Any:
    """Return plain numbers with five decimals."""
    return np.round(np.asarray(values, dtype=np.float64), 5).tolist()


def tell(record: Record) -> str:
    """Return a progress line."""
    one = record["configuration"]
    return f"{one['part']} {one.get('classes', '')} at {tuple(one['set_priors'])}: covered {record['covered']}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the missing cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, STORE)
    asked = parser.parse_args(arguments)
    complete(planned(asked.quick), fit, tell, out_of(asked, STORE), minutes=asked.minutes)


if __name__ == "__main__":
    main()
