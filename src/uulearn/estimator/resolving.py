"""What ``"auto"`` stands for: parameters that follow from the model, the number of rows and each other.

How each was chosen is told in ``docs/defaults.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from uulearn.data.batches import BatchPlan
from uulearn.data.holdout import row_digests
from uulearn.data.rows import TwoSets

AUTO = "auto"
SETTLED = ("loss", "lr", "l2", "members", "validation_fraction", "keep", "patience", "calibrated")
"""Parameters that may be ``"auto"``, in the order in which they are settled: each may depend on those before it."""
PLAIN: dict[str, Any] = {
    "loss": "logistic", "lr": 1e-3, "l2": 0.0, "members": 1, "validation_fraction": 0.0, "keep": "last",
    "patience": None, "calibrated": False,
}  # fmt: skip
"""The same for one model that is trained on all rows to the last epoch and used as it is, as in the paper."""
MEMBERS = 5
STACKABLE = ("linear", "mlp")
"""Models that are quick to train several times; others take their time."""
LEARNING_RATE = 1e-3
LINEAR_LEARNING_RATE = 1e-2
PENALTY = 5e-3
"""For the MLP with the sigmoid loss; with the logistic loss, and with ResNet-32, it does harm."""
HELD_OUT = 0.1
HELD_OUT_ROWS = 500
"""Rows of a set without which the choice of an epoch is too noisy to be worth training on fewer."""
DIFFERENT_ROWS = 100
"""Of a set in which every row has copies, which stay together: with so many, no fold is left without any."""
PATIENCE = 20
PATIENT_STEPS = 400


def resolve_defaults(
    parameters: Mapping[str, Any], sizes: tuple[int, int], *, held_out: bool = False, copies: bool = False
) -> dict[str, Any]:
    """The parameters that are ``"auto"``, as they will be for sets of these sizes.

    Parameters
    ----------
    parameters : dict
        All parameters of `uulearn.UUClassifier`.
    sizes : (int, int)
        Rows of set 0 and of set 1.
    held_out : bool
        Whether rows of both sets are given that are not trained on (``validation_data``).
    copies : bool
        Whether the rows are `has_few_unique_rows` of a few, so that none can be left out.

    Examples
    --------
    >>> from uulearn import UUClassifier
    >>> from pprint import pp
    >>> pp(resolve_defaults(UUClassifier((0.8, 0.2)).get_params(), (300, 300)), width=60)
    {'loss': 'sigmoid',
     'lr': 0.001,
     'l2': 0.005,
     'members': 5,
     'validation_fraction': 0.0,
     'keep': 'best',
     'patience': 400,
     'calibrated': True}
    >>> pp(resolve_defaults(UUClassifier((0.8, 0.2), model="resnet32").get_params(), (30_000, 30_000)), width=60)
    {'loss': 'sigmoid',
     'lr': 0.001,
     'l2': 0.0,
     'members': 1,
     'validation_fraction': 0.1,
     'keep': 'best',
     'patience': 20,
     'calibrated': True}
    """
    known = dict(parameters)
    rules: dict[str, Callable[[], Any]] = {
        "loss": lambda: "logistic" if _is(known, "model", "linear") else "sigmoid",
        "lr": lambda: LINEAR_LEARNING_RATE if _is(known, "model", "linear") else LEARNING_RATE,
        "l2": lambda: PENALTY if _is(known, "loss", "sigmoid") and _is(known, "model", "mlp") else 0.0,
        "members": lambda: _members(known, sizes, held_out, copies),
        "validation_fraction": lambda: _fraction(known, sizes, held_out, copies),
        "keep": lambda: "best" if _is_evaluated(known, held_out) else "last",
        "patience": lambda: _patience(known, sizes) if known["keep"] == "best" else None,
        "calibrated": lambda: known["set_priors"] is not None and _is_evaluated(known, held_out),
    }
    settled: dict[str, Any] = {}
    for name in SETTLED:
        if is_auto(known[name]):
            known[name] = settled[name] = rules[name]()
    return settled


def is_auto(value: Any) -> bool:
    """Whether a parameter is left to be settled.

    Examples
    --------
    >>> is_auto("auto"), is_auto(5)
    (True, False)
    """
    return isinstance(value, str) and value == AUTO


def _is(known: Mapping[str, Any], name: str, *values: str) -> bool:
    """Whether a parameter, which may be an object of the user's, is one of these names."""
    return isinstance(known[name], str) and known[name] in values


def has_few_unique_rows(data: TwoSets) -> bool:
    """Whether so few rows of a set differ that some folds could be without any, since copies stay together.

    Examples
    --------
    >>> import torch
    >>> from uulearn.data import DenseRows
    >>> rows, answers = torch.arange(40.0)[:, None], torch.arange(40.0)[:, None] % 4
    >>> [has_few_unique_rows(TwoSets((DenseRows(table), DenseRows(table + 0.5)))) for table in (rows, answers)]
    [False, True]
    """
    digests = row_digests(data)
    _, number, counts = np.unique(np.concatenate(digests), return_inverse=True, return_counts=True)
    return any(
        np.count_nonzero(counts[own] == 1) < MEMBERS and len(np.unique(own)) < DIFFERENT_ROWS
        for own in np.split(number, [len(digests[0])])
    )


def _members(known: Mapping[str, Any], sizes: tuple[int, int], held_out: bool, copies: bool) -> int:
    if known["rounds"]:
        return MEMBERS
    asked_for_one = held_out or not is_auto(known["validation_fraction"])
    several = _is(known, "model", *STACKABLE) and min(sizes) >= 2 * MEMBERS and not copies
    return MEMBERS if several and not asked_for_one else 1


def _fraction(known: Mapping[str, Any], sizes: tuple[int, int], held_out: bool, copies: bool) -> float:
    if known["members"] > 1 or held_out:
        return 0.0
    calibrated = bool(known["calibrated"]) and not is_auto(known["calibrated"])
    needed = known["keep"] == "best" or calibrated or isinstance(known["patience"], Integral)
    plenty = min(sizes) * HELD_OUT >= HELD_OUT_ROWS and not copies
    return HELD_OUT if needed or plenty else 0.0


def _is_evaluated(known: Mapping[str, Any], held_out: bool) -> bool:
    """Whether there will be rows of both sets that a model has not seen."""
    return bool(held_out or known["members"] > 1 or known["validation_fraction"])


def _patience(known: Mapping[str, Any], sizes: tuple[int, int]) -> int:
    """Epochs; where an epoch is a few steps, as many as make `PATIENT_STEPS`."""
    return max(PATIENCE, -(-PATIENT_STEPS // BatchPlan(sizes, known["batch_size"]).n_batches))
