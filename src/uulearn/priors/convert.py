"""From the vocabularies in which shares of positives are known to (θ, θ′), and back.

A rule, a person or a test that marks rows as positive splits them into two sets: set 0, the marked rows, holds the
share θ of true positives, set 1, the others, the share θ′. Functions ``from_…`` give (θ, θ′) for ``set_priors``;
functions ``to_…`` are their inverses.
"""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple

from uulearn.priors.mixture import solve_proportions
from uulearn.risk.coefficients import check_set_priors

SetPriors = tuple[float, float]


class NoiseRates(NamedTuple):
    """Class-conditional label noise."""

    rho_plus: float
    """P(marked negative | positive)."""
    rho_minus: float
    """P(marked positive | negative)."""
    positive_share: float
    """Share of true positives among all rows."""


class Accuracies(NamedTuple):
    """How well a test or rule finds the classes."""

    sensitivity: float
    specificity: float
    prevalence: float


class PredictiveValues(NamedTuple):
    """How far the marks of a labelling rule can be trusted."""

    precision: float
    """Share of positives among marked rows."""
    npv: float
    """Share of negatives among the others."""


class CensoredLabels(NamedTuple):
    """Positive-unlabeled data of which one sample was drawn and some of its positives labelled."""

    class_prior: float
    """Share of positives among all rows, labelled or not."""
    label_frequency: float
    """c: the share of positives that were labelled."""


def from_noise_rates(
    rho_plus: float,
    rho_minus: float,
    *,
    positive_share: float | None = None,
    noisy_positive_share: float | None = None,
) -> SetPriors:
    """(θ, θ′) of the rows with noisy label 1 and those with noisy label 0.

    With π the share of true positives, the share with noisy label 1 is s = π(1 − ρ₊) + (1 − π)ρ₋, θ = π(1 − ρ₊)/s and
    θ′ = πρ₊/(1 − s) (Menon, van Rooyen, Ong and Williamson, ICML 2015). Give one of π and s; s is the one that can be
    counted.

    Parameters
    ----------
    rho_plus, rho_minus : float
        ρ₊ = P(noisy 0 | positive) and ρ₋ = P(noisy 1 | negative).
    positive_share, noisy_positive_share : float
        π or s.

    Examples
    --------
    >>> theta, theta_prime = from_noise_rates(0.2, 0.1, positive_share=0.5)
    >>> round(theta, 4), round(theta_prime, 4)
    (0.8889, 0.1818)
    >>> theta, theta_prime = from_noise_rates(0.2, 0.1, noisy_positive_share=0.45)
    >>> round(theta, 4), round(theta_prime, 4)
    (0.8889, 0.1818)
    """
    _share(rho_plus, "rho_plus"), _share(rho_minus, "rho_minus")
    informative = 1 - rho_plus - rho_minus
    if abs(informative) < 1e-9:
        raise ValueError(
            f"rho_plus + rho_minus must not be 1, got {rho_plus:g} + {rho_minus:g}: such labels are drawn without "
            "regard to the class, and both sets hold the same share of positives."
        )
    if (positive_share is None) == (noisy_positive_share is None):
        raise ValueError(
            "give one of positive_share and noisy_positive_share, the share of true or of noisy positives."
        )
    if noisy_positive_share is not None:
        _inside(noisy_positive_share, "noisy_positive_share")
        positive_share = (noisy_positive_share - rho_minus) / informative
        if not 0 < positive_share < 1:
            low, high = sorted((rho_minus, 1 - rho_plus))
            raise ValueError(
                f"noisy_positive_share={noisy_positive_share:g} is impossible with rho_plus={rho_plus:g} and "
                f"rho_minus={rho_minus:g}, which allow {low:g} to {high:g}; check the rates."
            )
    else:
        assert positive_share is not None
        _inside(positive_share, "positive_share")
    marked = positive_share * (1 - rho_plus) + (1 - positive_share) * rho_minus
    if not 0 < marked < 1:
        raise ValueError(
            f"with rho_plus={rho_plus:g} and rho_minus={rho_minus:g} every row gets the same noisy label, and one set "
            "is empty."
        )
    return _priors(positive_share * (1 - rho_plus) / marked, positive_share * rho_plus / (1 - marked))


def to_noise_rates(set_priors: SetPriors, noisy_positive_share: float) -> NoiseRates:
    """ρ₊, ρ₋ and π when the share ``noisy_positive_share`` of all rows is in set 0.

    Examples
    --------
    >>> rates = to_noise_rates(from_noise_rates(0.2, 0.1, positive_share=0.5), 0.45)
    >>> [round(value, 4) for value in rates]
    [0.2, 0.1, 0.5]
    """
    theta, theta_prime = check_set_priors(set_priors)
    s = _inside(noisy_positive_share, "noisy_positive_share")
    pi = s * theta + (1 - s) * theta_prime
    return NoiseRates((1 - s) * theta_prime / pi, s * (1 - theta) / (1 - pi), pi)


def from_sensitivity(sensitivity: float, specificity: float, prevalence: float) -> SetPriors:
    """(θ, θ′) of the rows that a test finds positive and of those it finds negative.

    θ is the test's positive predictive value and θ′ is 1 minus its negative predictive value: Bayes' rule.

    Examples
    --------
    >>> theta, theta_prime = from_sensitivity(0.9, 0.95, prevalence=0.1)
    >>> round(theta, 4), round(theta_prime, 4)
    (0.6667, 0.0116)
    """
    for value, name in ((sensitivity, "sensitivity"), (specificity, "specificity")):
        _share(value, name)
    _inside(prevalence, "prevalence")
    if abs(sensitivity + specificity - 1) < 1e-9:
        raise ValueError(
            f"sensitivity + specificity must not be 1, got {sensitivity:g} + {specificity:g}: such a test is a coin, "
            "and both sets hold the same share of positives."
        )
    return from_noise_rates(1 - sensitivity, 1 - specificity, positive_share=prevalence)


def to_sensitivity(set_priors: SetPriors, flagged_share: float) -> Accuracies:
    """Sensitivity, specificity and prevalence when the test finds the share ``flagged_share`` of all rows positive.

    Examples
    --------
    >>> found = to_sensitivity((0.75, 0.25), flagged_share=0.5)
    >>> found
    Accuracies(sensitivity=0.75, specificity=0.75, prevalence=0.5)
    """
    rho_plus, rho_minus, pi = to_noise_rates(set_priors, _inside(flagged_share, "flagged_share"))
    return Accuracies(1 - rho_plus, 1 - rho_minus, pi)


def from_predictive_values(precision: float, npv: float) -> SetPriors:
    """(θ, θ′) of the rows that a labelling rule marks positive and of the others.

    Examples
    --------
    >>> from_predictive_values(precision=0.9, npv=0.75)
    (0.9, 0.25)
    """
    return _priors(_share(precision, "precision"), 1 - _share(npv, "npv"))


def to_predictive_values(set_priors: SetPriors) -> PredictiveValues:
    """Precision and negative predictive value of the rule that marks set 0.

    Examples
    --------
    >>> to_predictive_values((0.9, 0.25))
    PredictiveValues(precision=0.9, npv=0.75)
    """
    theta, theta_prime = check_set_priors(set_priors)
    return PredictiveValues(theta, 1 - theta_prime)


def from_case_control(class_prior: float) -> SetPriors:
    """(θ, θ′) of positive-unlabeled data drawn as two samples: positives, and rows from the population.

    Set 0 holds the labelled positives, set 1 the unlabeled rows, a share ``class_prior`` of which is positive.

    Examples
    --------
    >>> from_case_control(0.3)
    (1.0, 0.3)
    """
    return 1.0, _inside(class_prior, "class_prior")


def from_censoring(
    labelled_share: float, *, class_prior: float | None = None, label_frequency: float | None = None
) -> SetPriors:
    """(θ, θ′) of positive-unlabeled data drawn as one sample, of whose positives some were labelled.

    Set 0 holds the labelled rows, set 1 all others: fewer positives are left there than in the population. With ℓ the
    labelled share of all rows and π the share of positives among all rows, θ′ = (π − ℓ)/(1 − ℓ); the label frequency is
    c = ℓ/π (Elkan and Noto, KDD 2008). Give one of π and c.

    Examples
    --------
    >>> theta, theta_prime = from_censoring(0.1, class_prior=0.4)
    >>> theta, round(theta_prime, 4)
    (1.0, 0.3333)
    >>> theta, theta_prime = from_censoring(0.1, label_frequency=0.25)
    >>> theta, round(theta_prime, 4)
    (1.0, 0.3333)
    """
    _inside(labelled_share, "labelled_share")
    if (class_prior is None) == (label_frequency is None):
        raise ValueError("give one of class_prior, the share of positives, and label_frequency, how many are labelled.")
    if label_frequency is not None:
        if _share(label_frequency, "label_frequency") == 0:
            raise ValueError("label_frequency=0 means that no row is labelled, but labelled_share is above 0.")
        class_prior = labelled_share / label_frequency
    assert class_prior is not None
    if not labelled_share <= class_prior < 1:
        raise ValueError(
            f"a share of {labelled_share:g} is labelled, and all of them are positive, so the share of positives must "
            f"be at least that and below 1, got {class_prior:g}."
        )
    return _priors(1.0, (class_prior - labelled_share) / (1 - labelled_share))


def to_censoring(set_priors: SetPriors, labelled_share: float) -> CensoredLabels:
    """Class prior and label frequency from the share of positives left among the unlabeled rows.

    Examples
    --------
    >>> found = to_censoring((1.0, 1 / 3), labelled_share=0.1)
    >>> round(found.class_prior, 4), round(found.label_frequency, 4)
    (0.4, 0.25)
    """
    theta, theta_prime = check_set_priors(set_priors)
    share = _inside(labelled_share, "labelled_share")
    if theta != 1:
        raise ValueError(f"labelled rows of positive-unlabeled data are all positive, but set 0 has θ = {theta:g}.")
    class_prior = share + (1 - share) * theta_prime
    return CensoredLabels(class_prior, share / class_prior)


def from_mixture_proportions(kappa_10: float, kappa_01: float) -> SetPriors:
    """(θ, θ′), set 0 the richer, from κ(P₁ | P₀) and κ(P₀ | P₁), if the classes are mutually irreducible.

    Examples
    --------
    >>> theta, theta_prime = from_mixture_proportions(0.25, 0.25)
    >>> round(theta, 4), round(theta_prime, 4)
    (0.8, 0.2)
    """
    for value, name in ((kappa_10, "kappa_10"), (kappa_01, "kappa_01")):
        _share(value, name)
        if value == 1:
            raise ValueError(f"{name}=1 means that the sets are alike, and their shares of positives equal.")
    theta, theta_prime = solve_proportions(kappa_10, kappa_01)
    return _priors(float(theta), float(theta_prime))


def to_mixture_proportions(set_priors: SetPriors) -> tuple[float, float]:
    """κ(P₁ | P₀) and κ(P₀ | P₁) of mutually irreducible classes, for set 0 the richer.

    Examples
    --------
    >>> kappa_10, kappa_01 = to_mixture_proportions((0.8, 0.2))
    >>> round(kappa_10, 4), round(kappa_01, 4)
    (0.25, 0.25)
    """
    theta, theta_prime = check_set_priors(set_priors)
    if theta < theta_prime:
        raise ValueError(f"set 0 must be the richer, got θ = {theta:g} < θ′ = {theta_prime:g}; exchange the sets.")
    return (1 - theta) / (1 - theta_prime), theta_prime / theta


def _priors(theta: float, theta_prime: float) -> SetPriors:
    return check_set_priors((theta, theta_prime))


def _share(value: float, name: str) -> float:
    if not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value!r}; give it as a fraction, 80% as 0.8.")
    return float(value)


def _inside(value: float, name: str) -> float:
    if not 0 < _share(value, name) < 1:
        raise ValueError(
            f"{name} must lie strictly between 0 and 1, got {value!r}; at the ends one set would be empty."
        )
    return float(value)
