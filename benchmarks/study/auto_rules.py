"""Compare rules that weigh boosted trees and an MLP without labels (``model="auto"``), on tables that no page reports.

`auto_fits.py` trains the models and stores their scores. Here, the risk on the held-out sets is computed for each
weight of the MLP from 0 to 1 in steps of 0.1, with the calibration of `UUClassifier`. Each rule computes a weight from
the out-of-fold scores of the training rows, and its risk is interpolated. No rule uses labels, nor the held-out sets.

    python benchmarks/study/auto_rules.py --scores FOLDER_OF_SCORES [--workers 2]
    python benchmarks/study/auto_rules.py
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from resuming import STUDY
from scipy.special import expit
from scipy.stats import norm

from uulearn.estimator.auto import LIKELIHOOD_POWER, decision_weights
from uulearn.metrics.calibration import (
    PlattScaling,
    calibrate_out_of_fold,
    fit_platt_scaling,
    set_log_likelihood,
    shift_log_odds,
)
from uulearn.metrics.out_of_fold import SELECTION_ERROR_SCALE, OutOfFoldCorrection

STORE = STUDY / "auto_rules.jsonl.gz"
MODELS = ("boosting", "mlp")
WEIGHTS = np.linspace(0, 1, 11)
"""Weights of the MLP; the trees have the rest."""

Floats = NDArray[np.float64]
Line = dict[str, Any]


def file_name(cell: Mapping[str, Any]) -> str:
    """Return the name of the file with the scores of a cell."""
    return "{table}-{rows}-{draw}-{seed}.npz".format(**{**cell, "draw": cell["draw"].replace(":", "to")})


@dataclass(frozen=True)
class Difference:
    """Loss of the trees minus loss of the MLP on out-of-fold rows, with its standard error."""

    value: float
    error: float

    @property
    def errors(self) -> float:
        """The difference in standard errors, which account for rows of a fold that share a model."""
        return self.value / max(SELECTION_ERROR_SCALE * self.error, 1e-9)


@dataclass(frozen=True)
class Evidence:
    """What a rule knows about the two models."""

    zero_one: Difference
    log_loss: Difference
    """Negative log-likelihood of the sets, summed over all rows."""
    brier: Difference
    likelihoods: Floats
    """Log-likelihood of the sets for each weight in `WEIGHTS`."""


Rule = Callable[[Evidence], float]


def threshold(errors: float, otherwise: float = 0.5) -> Rule:
    """Return the rule that discards a model whose zero-one risk is higher by a number of standard errors."""

    def rule(found: Evidence) -> float:
        limit = errors * found.zero_one.error
        return 1.0 if found.zero_one.value > limit else 0.0 if found.zero_one.value < -limit else otherwise

    return rule


def likelihood(power: float, prior: float = 0.5) -> Rule:
    """Return the rule whose weights are prior weights times a power of the likelihood of the sets."""
    return lambda found: float(expit(np.log(prior / (1 - prior)) + power * found.log_loss.value))


def stacking(power: float, prior: tuple[float, float] = (1.0, 1.0)) -> Rule:
    """Return the rule that averages the weight over its posterior, with a beta distribution as prior."""
    inside = WEIGHTS.clip(0.025, 0.975)
    log_prior = (prior[0] - 1) * np.log(inside) + (prior[1] - 1) * np.log(1 - inside)

    def rule(found: Evidence) -> float:
        posterior = np.exp(power * (found.likelihoods - found.likelihoods.max()) + log_prior)
        return float(posterior @ WEIGHTS / posterior.sum())

    return rule


def probability(which: str, prior: float = 0.5) -> Rule:
    """Return the rule that uses the probability that the MLP is better, given its difference in standard errors."""
    return lambda found: float(norm.cdf(norm.ppf(prior) + getattr(found, which).errors))


RULES: dict[str, Rule] = {
    "boosting": lambda found: 0.0,
    "mlp": lambda found: 1.0,
    "average": lambda found: 0.5,
    "fixed 0.6": lambda found: 0.6,
    "fixed 0.7": lambda found: 0.7,
    "threshold 2": threshold(2),
    "threshold 3": threshold(3),
    "threshold 4": threshold(4),
    "threshold 2, otherwise 0.6": threshold(2, 0.6),
    "zero_one": probability("zero_one"),
    "log_loss": probability("log_loss"),
    "brier": probability("brier"),
    "log_loss 0.7": probability("log_loss", 0.7),
    "likelihood 0.25": likelihood(0.25),
    "likelihood 0.5": likelihood(0.5),
    "likelihood 0.25, 0.7": likelihood(0.25, 0.7),
    "best likelihood": lambda found: float(WEIGHTS[found.likelihoods.argmax()]),
    "stacking": stacking(LIKELIHOOD_POWER),
    "stacking 2": stacking(2),
    "stacking, 2 2": stacking(LIKELIHOOD_POWER, (2, 2)),
    "stacking, 2 1": stacking(LIKELIHOOD_POWER, (2, 1)),
    "stacking, 4 2": stacking(LIKELIHOOD_POWER, (4, 2)),
}
"""Weight of the MLP by each rule."""


# -------------------------------------------------------------------------------------------------------- one fit


def evaluate(path: Path) -> Line:
    """Return the risk of each weight on the held-out sets, and the weight of each rule."""
    stored = np.load(path)
    about = json.loads(str(stored["about"]))
    priors, target_prior, sizes = tuple(about["set_priors"]), about["target_prior"], tuple(about["sizes"])
    sets, folds = np.repeat([0, 1], sizes), stored["folds"].astype(np.int64)
    trained = folds[:, None] != np.arange(folds.max() + 1)
    decisions, log_odds = {}, {}
    for model in MODELS:
        scores = stored[f"{model}_out_of_fold"]
        scaling, decisions[model] = calibrate_out_of_fold(scores, sets, folds, priors, target_prior)
        log_odds[model] = {
            part: scaling.log_odds(stored[f"{model}_{part}"]) for part in ("out_of_fold", "training", "held_out")
        }
    held_out = decision_weights(
        np.repeat([0, 1], about["held_out_size"]), tuple(about["held_out_priors"]), target_prior
    )
    evidence = _evidence(log_odds, decisions, sets, priors, target_prior)
    risks = []
    for weight in WEIGHTS:
        blend = {
            part: weight * log_odds["mlp"][part] + (1 - weight) * log_odds["boosting"][part]
            for part in ("out_of_fold", "training", "held_out")
        }
        scaling = fit_platt_scaling(blend["out_of_fold"].astype(np.float32), sets, priors, target_prior)
        scaling = _ensemble_scaling(blend["training"], trained, sizes, scaling, priors)
        risks.append(target_prior + float(held_out[scaling.log_odds(blend["held_out"]) > 0].sum()))
    return {
        **{key: about[key] for key in ("table", "rows", "draw", "seed")},
        "risks": np.round(risks, 4).tolist(),
        "rules": {name: round(rule(evidence), 3) for name, rule in RULES.items()},
    }


def _ensemble_scaling(
    scores: Floats, trained: NDArray[np.bool_], sizes: tuple[int, int], scaling: PlattScaling, priors: Any
) -> PlattScaling:
    """Return the calibration of an ensemble, as in a fit."""
    own = scores[trained].reshape(len(scores), -1).astype(np.float32)
    return OutOfFoldCorrection.from_scores(own, sizes, scaling, priors).scaling


def _evidence(
    log_odds: Mapping[str, Mapping[str, Floats]],
    decisions: Mapping[str, NDArray[np.float32]],
    sets: NDArray[np.int64],
    priors: tuple[float, float],
    target_prior: float,
) -> Evidence:
    """Compare the models on the out-of-fold rows."""
    own = np.asarray(priors)[sets]
    pooled = float(own.mean())
    n, (first, second) = np.bincount(sets)[sets], priors
    positive = np.where(sets == 0, 1 - second, first - 1) / (first - second) / n * target_prior
    negative = np.where(sets == 0, -second, first) / (first - second) / n * (1 - target_prior)

    def sets_given(values: Floats) -> Floats:
        shifted = shift_log_odds(values, target_prior, pooled)
        return set_log_likelihood(shifted, (1 - own) / (1 - pooled), own / pooled)[0]

    def brier(values: Floats) -> Floats:
        return np.asarray(positive * expit(-values) ** 2 + negative * expit(values) ** 2)

    def difference(losses: Callable[[str], Floats]) -> Difference:
        change = losses("boosting") - losses("mlp")
        variance = sum((sets == which).sum() * change[sets == which].var() for which in (0, 1))
        return Difference(float(change.sum()), float(variance**0.5))

    values = {model: parts["out_of_fold"] for model, parts in log_odds.items()}
    weights = decision_weights(sets, priors, target_prior)
    blends = (weight * values["mlp"] + (1 - weight) * values["boosting"] for weight in WEIGHTS)
    return Evidence(
        difference(lambda model: weights * (decisions[model] > 0)),
        difference(lambda model: -sets_given(values[model])),
        difference(lambda model: brier(values[model])),
        np.array([sets_given(blend).sum() for blend in blends]),
    )


# ----------------------------------------------------------------------------------------------------- comparison


@dataclass(frozen=True)
class Result:
    """Risks of a rule in percentage points, each a mean over the seeds of a cell."""

    risk: float
    change: float
    """Mean difference from the average of both models."""
    change_error: float
    """Standard error of ``change`` over tables."""
    regrets: Floats
    """Risk minus that of the better single model, for each cell."""


def compare(lines: Sequence[Line], rule: str) -> Result:
    """Return the result of a stored rule; a cell is a table, a number of rows and a draw."""
    cells = defaultdict(list)
    for line in lines:
        cells[line["table"], line["rows"], line["draw"]].append(line)
    risks, regrets, changes = [], [], defaultdict(list)
    for (table, *_), own in cells.items():
        curves = 100 * np.array([line["risks"] for line in own])
        risk = np.mean(
            [np.interp(line["rules"][rule], WEIGHTS, curve) for line, curve in zip(own, curves, strict=True)]
        )
        middle = curves[:, len(WEIGHTS) // 2].mean()
        risks.append(risk)
        regrets.append(risk - min(curves[:, 0].mean(), curves[:, -1].mean()))
        changes[table].append(risk - middle)
    mean = float(np.mean([change for own in changes.values() for change in own]))
    sums = [sum(own) - len(own) * mean for own in changes.values()]
    return Result(float(np.mean(risks)), mean, float(np.sqrt(np.square(sums).sum()) / len(cells)), np.array(regrets))


def read(path: Path = STORE) -> list[Line]:
    """Return the stored fits; a missing file counts as empty."""
    return (
        []
        if not path.exists()
        else [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    )


def main() -> None:
    """Apply all rules to stored scores, or print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, help="folder of scores, written by auto_fits.py")
    parser.add_argument("--files", default="*.npz", help="pattern of the files to read; fits in the store are skipped")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--workers", type=int, default=1, help="number of processes")
    asked = parser.parse_args()
    if asked.scores is not None:
        lines = [line for line in read(asked.store) if line["rules"].keys() == RULES.keys()]
        done = {file_name(line) for line in lines}
        paths = sorted(path for path in asked.scores.glob(asked.files) if path.name not in done)
        with ProcessPoolExecutor(asked.workers, get_context("spawn")) as pool:
            lines += pool.map(evaluate, paths, chunksize=8)
        lines.sort(key=lambda line: (line["seed"], line["rows"], line["table"], line["draw"]))
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        asked.store.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    lines = read(asked.store)
    print(f"{len(lines):,} fits")
    print(f"{'rule':26}{'risk':>6}{'change':>16}{'regret':>8}{'above 1':>9}{'above 2':>9}{'worst':>7}")
    for rule in lines[0]["rules"]:
        found = compare(lines, rule)
        above = [float((found.regrets > limit).mean()) for limit in (1, 2)]
        print(
            f"{rule:26}{found.risk:>6.2f}{found.change:>+8.2f} ± {found.change_error:.2f}{found.regrets.mean():>+9.2f}"
            f"{above[0]:>9.1%}{above[1]:>9.1%}{found.regrets.max():>+7.1f}"
        )


if __name__ == "__main__":
    main()
