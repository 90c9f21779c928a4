"""The model that the reports are about: real facts of a real classifier, as `uulearn fit` stores them."""

import dataclasses
import functools
import json
import math

import numpy as np
from sklearn.datasets import load_breast_cancer

from helpers.plain import plain_classifier
from uulearn.datasets import make_sets
from uulearn.metrics import evaluate, uu_accuracy
from uulearn.metrics.ranking import two_sample_auc
from uulearn.selection import prior_sensitivity
from uulearn.training import History

PRIORS, TARGET = (0.8, 0.2), 0.5
JUDGING = 80
NAMES = ("clinic_a.csv", "clinic_b.csv")
LETTERS = {"theta": "θ", "theta_prime": "θ′", "pi": "π", "baseline": "baseline"}


@functools.cache
def example():
    """Facts and history of a classifier of tumours; made once, and to be copied before it is changed."""
    bunch = load_breast_cancer()
    X = ((bunch.data - bunch.data.mean(0)) / bunch.data.std(0)).astype(np.float32)
    drawn = make_sets(X, (bunch.target == 0).astype(int), PRIORS, (255, 260), random_state=0)
    kept, evaluating = zip(*((rows[:-JUDGING], rows[-JUDGING:]) for rows in _shuffled(drawn)), strict=True)
    settings = {"model_params": {"hidden": (32,)}, "epochs": 30, "lr": 0.003, "batch_size": 80, "smoothing": 5}
    keeping = {"validation_fraction": 0.25, "early_stopping": True, "random_state": 0, "progress": False}
    classifier = plain_classifier(PRIORS, TARGET, **settings, **keeping)
    classifier.fit_sets(*kept)
    sets = np.repeat([0, 1], JUDGING)
    scores = np.concatenate([classifier.decision_function(rows) for rows in evaluating])
    between = two_sample_auc(scores[:JUDGING], scores[JUDGING:], 0.95)
    counts, edges = zip(*(np.histogram(scores[sets == which], _edges(scores)) for which in (0, 1)), strict=True)
    doubts = prior_sensitivity(classifier, np.concatenate(kept), np.repeat([0, 1], [len(rows) for rows in kept]))
    columns = [*map(str, bunch.feature_names)]
    command = f"uulearn fit {NAMES[0]} {NAMES[1]} --set-priors 0.8 0.2 --target-prior 0.5 --out model"
    facts = {
        "created": "2026-11-16T01:02:03Z",
        "uulearn": "0.1.0",
        "torch": "2.13.0",
        "seconds": 12.3,
        "device": "cpu",
        "command": command,
        "files": [
            {"name": name, "rows": len(kept[which]) + JUDGING, "prior": PRIORS[which]}
            for which, name in enumerate(NAMES)
        ],
        "columns": [
            {
                "name": "patient",
                "kind": "text",
                "used": False,
                "why": "every row has a value of its own",
                "missing": [0, 0],
            },
            *({"name": name, "kind": "number", "used": True, "why": None, "missing": [0.01, 0.0]} for name in columns),
        ],
        "features": len(columns),
        "set_priors": list(PRIORS),
        "target_prior": TARGET,
        "priors_estimated": None,
        "split": {
            "train": list(classifier.set_sizes_),
            "choose": list(classifier.held_out_sizes_),
            "evaluate": [JUDGING, JUDGING],
        },
        "set_auc": {"value": between.value, "interval": list(between.interval)},
        "evaluation": dataclasses.asdict(evaluate(scores, sets, PRIORS, TARGET)),
        "targets": [_at(scores, sets, prior) for prior in np.linspace(0.05, 0.95, 19).round(2).tolist()],
        "histogram": {"edges": edges[0].tolist(), "counts": [side.tolist() for side in counts]},
        "importance": _importance(classifier, np.concatenate(evaluating), sets, columns),
        "sensitivity": {
            "rows": [
                {
                    "parameter": LETTERS[row.assumption.parameter],
                    "error": row.assumption.error,
                    "accuracy": row.shown.value,
                    "interval": list(row.shown.interval),
                }
                for row in doubts.rows
            ],
            "conclusion": doubts.conclusion,
        },
        "notes": ["patient was left out: every row has a value of its own"],
        "warnings": [],
        "commands": {
            "predict": "uulearn predict model new.csv --out scored.csv",
            "evaluate": f"uulearn evaluate model {NAMES[0]} {NAMES[1]}",
            "repeat": "uulearn fit --config model/config.toml",
        },
        "configuration": {
            "priors": {"set_priors": list(PRIORS)},
            "training": {"method": "leaky_relu", "model": "mlp", "epochs": 30},
        },
    }
    return json.dumps(facts), json.dumps(classifier.history_.to_dict())


def facts_and_history():
    """A fresh copy of both, through JSON as from a model directory."""
    facts, history = example()
    return json.loads(facts), History.from_dict(json.loads(history))


def _shuffled(drawn):
    rng = np.random.default_rng(0)
    return [rows[rng.permutation(len(rows))] for rows in drawn]


def _edges(scores):
    return np.linspace(scores.min(), scores.max(), 21)


def _at(scores, sets, prior):
    threshold = -math.log(prior / (1 - prior))
    found = uu_accuracy(scores, sets, PRIORS, prior, threshold=threshold)
    return {"target_prior": prior, "threshold": threshold, "accuracy": found.value, "interval": list(found.interval)}


def _importance(classifier, rows, sets, columns):
    rng = np.random.default_rng(0)
    whole = uu_accuracy(classifier.decision_function(rows), sets, PRIORS, TARGET).value
    found = []
    for place, column in enumerate(columns):
        drops = []
        for _ in range(3):
            shuffled = rows.copy()
            shuffled[:, place] = rng.permutation(shuffled[:, place])
            drops.append(whole - uu_accuracy(classifier.decision_function(shuffled), sets, PRIORS, TARGET).value)
        found.append({"column": column, "drop": float(np.mean(drops)), "standard_error": float(np.std(drops) / 3**0.5)})
    return sorted(found, key=lambda entry: -entry["drop"])


def test_the_example_has_what_the_page_has_to_tell():
    facts, history = facts_and_history()
    assert 0.8 < facts["evaluation"]["accuracy"]["value"] < 1.1
    assert history.first_negative_epoch is not None
    assert history.best_epoch is not None
    assert len(facts["targets"]) == 19
    assert len(facts["sensitivity"]["rows"]) == 13
    assert facts["importance"][0]["drop"] > 0
