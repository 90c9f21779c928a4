"""Describe a fitted classifier in a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uulearn.estimator.auto import describe_comparison
from uulearn.estimator.learners import NetworkModel
from uulearn.estimator.parameters import is_auto
from uulearn.risk import estimation_cost, get_loss, multi_set_coefficients, uu_coefficients
from uulearn.risk.coefficients import MAX_LISTED_SETS
from uulearn.risk.corrections import METHOD_MEANINGS, get_method

if TYPE_CHECKING:
    from uulearn.estimator.classifier import UUClassifier
    from uulearn.training import History


def summarize(classifier: UUClassifier) -> str:
    """Return the text of `UUClassifier.summary`."""
    lines = _assumptions(classifier)
    if classifier.scaling_ is not None:
        lines.append("calibrated without labels: scores are log-odds, and probabilities estimate P(y | x)")
    compared = classifier.comparison_ or []
    if any(entry.risk is not None for entry in compared):
        lines.append(f"compared without labels: {describe_comparison(compared)}")
    if classifier.consistency_ is not None:
        lines.append(f"compared without labels: {classifier.consistency_}")
    lines += _validation(classifier)
    lines += _training(classifier.history_)
    used = classifier.history_.labels_used
    lines.append("labels were passed for evaluation; training did not use them" if used else "no label was used")
    return "\n".join(lines)


def _validation(classifier: UUClassifier) -> list[str]:
    """Describe how the model was validated, and give its accuracy."""
    if classifier.out_of_fold_evaluation_ is None:
        held_out = " + ".join(f"{size:,}" for size in classifier.held_out_sizes_ if size)
        return [f"held out of training for validation without labels: {held_out} rows"] if held_out else []
    rounds = classifier.self_training_ or []
    best = max((done.number for done in rounds if done.better), default=0)
    self_trained = "then self-trained; accuracy of models trained on one half of the rows and evaluated on the other,"
    models, accuracy = classifier.fitted_params()["n_estimators"], classifier.out_of_fold_evaluation_.accuracy
    lines = [
        f"{models} models, each trained without one fold and {self_trained if best else 'evaluated on it; accuracy'} "
        f"estimated without labels: {accuracy}"
    ]
    for done in rounds[1:]:
        assert done.gain is not None
        low, high = (100 * end for end in done.gain.interval)
        verdict = "used" if done.number == best else "better" if done.better else "no better"
        lines.append(
            f"self-training round {done.number}: sets with class priors {done.set_priors[0]:.1%} and "
            f"{done.set_priors[1]:.1%}; gained {100 * done.gain.value:+.2f} points ({low:+.2f} to {high:+.2f}) over "
            f"the previous best round, {verdict}"
        )
    return lines


def _training(history: History) -> list[str]:
    """Describe how training ended."""
    if not len(history):
        return [f"stopped: {history.stop_reason}; no epoch was completed"]
    last = history[-1]
    lines = [
        f"stopped: {history.stop_reason}; last epoch: positive risk term {last['positive']:+.4f}, negative risk term "
        f"{last['negative']:+.4f}, risk {last['unbiased']:+.4f} (unbiased), {last['corrected']:+.4f} (corrected)"
    ]
    if history.best_epoch is not None:
        error = max(0.0, history[history.best_epoch - 1]["validation_zero_one"])  # unbiased, so it can be negative
        lines.append(f"best epoch: {history.best_epoch}, with error {error:.1%} on the held-out rows")
    negative = history.first_negative_epoch
    when = "was never negative" if negative is None else f"was first negative in epoch {negative}"
    return [*lines, f"the empirical risk {when}"]


def _assumptions(classifier: UUClassifier) -> list[str]:
    """Describe the assumed priors, and the equivalent number of labeled rows."""
    sizes, priors = classifier.set_sizes_, classifier.set_priors
    method = get_method(classifier.method, classifier.slope)
    meaning = METHOD_MEANINGS.get(method.name, "risk correction by own functions").format(slope=f"{classifier.slope:g}")
    chosen = classifier.fitted_params()["loss"]
    loss = "of each model" if is_auto(chosen) else get_loss(chosen).name
    how = f"method {method.name} ({meaning}), loss {loss}"
    if isinstance(classifier.trained_, NetworkModel):
        how += f", matrix products in {classifier.precision_}"
    higher, check = "set 0 has the higher class prior", "unlabeled rows cannot confirm this, so verify it"
    sets, target = describe_sets(sizes, priors), []
    if priors is None:
        sets += "; their class priors are unknown"
    else:
        name = "higher" if len(priors) == 2 else "highest"
        higher = f"set {priors.index(max(priors))} has the {name} class prior"
        cost = estimation_cost(priors, classifier.target_prior, sizes)
        target = [
            f"target: {classifier.target_prior:.1%} positive; {_coefficients(priors, sizes, classifier.target_prior)}"
            f"for estimating the error, these rows are worth {round(cost.effective_rows):,} labeled rows"
        ]
    return [sets, f"assumed: {higher}; {check}", *target, how]


def describe_sets(sizes: Sequence[int], set_priors: Sequence[float] | None) -> str:
    """Describe the sizes and, if known, the class priors of the sets; more than eight sets are summarized.

    >>> describe_sets((700, 300), (0.8, 0.2))
    'set 0: 700 rows, 80.0% positive; set 1: 300 rows, 20.0% positive'
    >>> describe_sets([20] * 9, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    '9 sets, 180 rows in total, 10.0% to 90.0% positive'
    """
    if len(sizes) > MAX_LISTED_SETS:
        text = f"{len(sizes)} sets, {sum(sizes):,} rows in total"
        return text if set_priors is None else f"{text}, {min(set_priors):.1%} to {max(set_priors):.1%} positive"
    each = [f"set {which}: {n:,} rows" for which, n in enumerate(sizes)]
    if set_priors is not None:
        each = [f"{text}, {prior:.1%} positive" for text, prior in zip(each, set_priors, strict=True)]
    return "; ".join(each)


def _coefficients(priors: Sequence[float], sizes: Sequence[int], target_prior: float) -> str:
    """Return the coefficients of the risk as text; an empty text if there are too many."""
    if len(priors) == 2:
        names = zip("abcd", uu_coefficients(priors, target_prior), strict=True)
        return f"coefficients {', '.join(f'{name} = {value:.4g}' for name, value in names)}; "
    if len(priors) > MAX_LISTED_SETS:
        return ""
    found = zip("ab", multi_set_coefficients(priors, sizes, target_prior), strict=True)
    listed = " and ".join(f"{name} = ({', '.join(f'{value:.4g}' for value in values)})" for name, values in found)
    return f"coefficients {listed}; "
