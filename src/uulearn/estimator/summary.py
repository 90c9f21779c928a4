"""What was trained, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uulearn.risk import estimation_cost, get_loss, uu_coefficients
from uulearn.risk.corrections import get_method

if TYPE_CHECKING:
    from uulearn.estimator.classifier import UUClassifier
    from uulearn.estimator.self_training import Round


def summarize(classifier: UUClassifier) -> str:
    """The lines that `UUClassifier.summary` gives."""
    history = classifier.history_
    lines = _assumed(classifier)
    if classifier.scaling_ is not None:
        lines.append("calibrated without labels: scores are log-odds, probabilities mean what they say")
    if classifier.cross_fitted_ is not None:
        rounds = classifier.refinement_ or []
        kept = max((done.number for done in rounds if done.better), default=0)
        how = (
            "refined; accuracy of such models of half of the rows, on the other half,"
            if kept
            else "evaluated on it; accuracy"
        )
        members = classifier._trained_with()["members"]
        lines.append(
            f"{members} models, each trained without one fold and {how} estimated without labels: "
            f"{classifier.cross_fitted_.accuracy}"
        )
        lines += [_refined(done, kept) for done in rounds[1:]]
    elif any(classifier.held_out_sizes_):
        held_out = " + ".join(f"{size:,}" for size in classifier.held_out_sizes_)
        lines.append(f"held out of training to evaluate the epochs, without labels: {held_out} rows")
    if len(history):
        last = history[-1]
        lines.append(
            f"stopped: {history.stop_reason}; last epoch: positive bracket {last['positive']:+.4f}, negative bracket "
            f"{last['negative']:+.4f}, risk {last['unbiased']:+.4f} (unbiased), {last['corrected']:+.4f} (corrected)"
        )
        if history.best_epoch is not None:
            error = history[history.best_epoch - 1]["validation_zero_one"]
            lines.append(f"kept: the weights of epoch {history.best_epoch}, error on the held-out rows {error:.1%}")
        negative = history.first_negative_epoch
        lines.append(
            "the empirical risk never went negative"
            if negative is None
            else f"the empirical risk first went negative in epoch {negative}"
        )
    else:
        lines.append(f"stopped: {history.stop_reason}; no epoch was finished")
    lines.append(
        "labels were passed for evaluation; training did not use them" if history.labels_used else "no label was used"
    )
    return "\n".join(lines)


def _refined(done: Round, kept: int) -> str:
    assert done.gain is not None
    low, high = (100 * end for end in done.gain.interval)
    verdict = "kept" if done.number == kept else "better" if done.better else "no better"
    return (
        f"refinement, round {done.number}: sets with {done.set_priors[0]:.1%} and {done.set_priors[1]:.1%} positives; "
        f"gained {100 * done.gain.value:+.2f} points ({low:+.2f} to {high:+.2f}) on the best before it, {verdict}"
    )


def _assumed(classifier: UUClassifier) -> list[str]:
    """What the sets were taken for, and what that costs."""
    n, n_prime = classifier.set_sizes_
    method = get_method(classifier.method, classifier.slope)
    slope = f" (λ = {classifier.slope:g})" if "leaky_relu" in method.name else ""
    loss = get_loss(classifier._trained_with()["loss"])
    how = f"method {method.name}{slope}, loss {loss.name}, products in {classifier.precision_}"
    if classifier.set_priors is None:
        return [
            f"set 0: {n:,} rows; set 1: {n_prime:,} rows; their shares of positives are unknown",
            "set 0 was taken as the richer in positives; the rows alone cannot tell, so check that it is",
            how,
        ]
    theta, theta_prime = classifier.set_priors
    a, b, c, d = uu_coefficients(classifier.set_priors, classifier.target_prior)
    cost = estimation_cost(classifier.set_priors, classifier.target_prior, classifier.set_sizes_)
    return [
        f"set 0: {n:,} rows, {theta:.1%} positive; set 1: {n_prime:,} rows, {theta_prime:.1%} positive",
        f"set {int(theta < theta_prime)} was taken as the richer in positives; the rows alone cannot tell, so check "
        "that it is",
        f"target: {classifier.target_prior:.1%} positive; coefficients a = {a:.4g}, b = {b:.4g}, c = {c:.4g}, "
        f"d = {d:.4g}; the rows are worth {round(cost.effective_rows):,} labelled ones for estimating the error",
        how,
    ]
