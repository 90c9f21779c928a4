"""Example for the reports: facts of a real classifier, as `uulearn fit` stores them."""

import functools
import json

import numpy as np
from sklearn.datasets import load_breast_cancer

from helpers.plain import plain_classifier
from uulearn.app.estimates import evaluation_facts, sensitivity_facts
from uulearn.app.facts import ColumnFacts, FitFacts, RowUse, SetFacts
from uulearn.app.training import EvaluationRows
from uulearn.datasets import make_sets
from uulearn.tabular.schema import TableColumn

PRIORS, TARGET = (0.8, 0.2), 0.5
EVALUATION_ROWS = 80
NAMES = ("clinic_a.csv", "clinic_b.csv")


@functools.cache
def facts_and_history():
    """Facts and training history of a classifier of tumors; facts are read back from JSON, as from a directory."""
    bunch = load_breast_cancer()
    X = ((bunch.data - bunch.data.mean(0)) / bunch.data.std(0)).astype(np.float32)
    drawn = make_sets(X, (bunch.target == 0).astype(int), PRIORS, (255, 260), random_state=0)
    rng = np.random.default_rng(0)
    shuffled = [rows[rng.permutation(len(rows))] for rows in drawn]
    trained = [rows[:-EVALUATION_ROWS] for rows in shuffled]
    evaluation = np.concatenate([rows[-EVALUATION_ROWS:] for rows in shuffled])
    sets = np.repeat([0, 1], EVALUATION_ROWS)
    settings = {"model_params": {"hidden": (32,)}, "epochs": 30, "lr": 0.003, "batch_size": 80, "smoothing": 5}
    stopping = {"validation_fraction": 0.25, "early_stopping": True, "random_state": 0, "progress": False}
    classifier = plain_classifier(PRIORS, TARGET, **settings, **stopping)
    classifier.fit_sets(*trained)
    columns = [*map(str, bunch.feature_names)]
    groups = {column: [place] for place, column in enumerate(columns)}
    scores, folds = classifier.decision_function(evaluation), np.zeros(len(sets), dtype=np.int64)
    row_use = RowUse(classifier.set_sizes_, classifier.held_out_sizes_, (EVALUATION_ROWS, EVALUATION_ROWS))
    rows = EvaluationRows(
        scores, sets, evaluation, sets, folds, lambda X, folds: classifier.decision_function(X), row_use, tuple(trained)
    )
    facts = FitFacts(
        created="2026-11-16T01:02:03Z",
        versions={"uulearn": "0.1.0", "torch": "2.13.0"},
        seconds=12.3,
        device="cpu",
        command=f"uulearn fit {NAMES[0]} {NAMES[1]} --set-priors 0.8 0.2 --target-prior 0.5 --out model",
        sets=tuple(SetFacts(name, len(rows), p) for name, rows, p in zip(NAMES, shuffled, PRIORS, strict=True)),
        columns=(
            ColumnFacts("patient", "text", used=False, reason="every row has its own value"),
            *(ColumnFacts(column, "number", used=True, missing=(0.01, 0.0)) for column in columns),
        ),
        n_features=len(columns),
        target_prior=TARGET,
        prior_intervals=None,
        row_use=row_use,
        out_of_fold=False,
        sensitivity=sensitivity_facts(
            classifier, np.concatenate(trained), np.repeat([0, 1], [len(rows) for rows in trained])
        ),
        notes=("patient is not used: every row has its own value",),
        warnings=(),
        configuration={"seed": 0, "classifier": {"method": "leaky_relu", "model": "mlp", "epochs": 30}},
        commands={
            "predict": "uulearn predict model new.csv --out scored.csv",
            "evaluate": f"uulearn evaluate model {NAMES[0]} {NAMES[1]}",
            "report": "uulearn report model",
            "repeat": "uulearn fit --config model/config.toml",
        },
        **evaluation_facts(rows, groups, [TableColumn(name, "number") for name in columns], PRIORS, TARGET, seed=0),
    )
    return FitFacts.from_dict(json.loads(json.dumps(facts.to_dict()))), classifier.history_
