"""Convert between the class priors (θ, θ′) of two sets and related quantities, such as label noise rates.

Suppose that a rule, a person or a test marks some rows as positive. Set 0 contains the marked rows and has class prior
θ. Set 1 contains the other rows and has class prior θ′. The ``from_…`` functions return (θ, θ′) for ``set_priors``, and
the ``to_…`` functions are their inverses.
"""

from numbers import Real
from typing import NamedTuple

from uulearn.priors.mixture import solve_proportions
from uulearn.risk.coefficients import check_set_priors

SetPriors = tuple[float, float]


class NoiseRates(NamedTuple):
    """Label noise rates of the positive class and of the negative class, and the class prior of all rows."""

    rho_plus: float
    rho_minus: float
    class_prior: float


class DiagnosticAccuracy(NamedTuple):
    """Sensitivity and specificity of a test or rule, and the class prior (prevalence) of all rows."""

    sensitivity: float
    specificity: float
    prevalence: float


class PredictiveValues(NamedTuple):
    """Precision and negative predictive value of a rule that marks rows as positive."""

    precision: float
    npv: float


class CensoredLabels(NamedTuple):
    """Class prior of all rows, and label frequency (the fraction of positives that are labeled)."""

    class_prior: float
    label_frequency: float


def from_noise_rates(
    rho_plus: float, rho_minus: float, *, class_prior: float | None = None, marked_fraction: float | None = None
) -> SetPriors:
    """Return the class priors of the rows with noisy label 1 (θ) and of the rows with noisy label 0 (θ′).

    Let ρ₊ = P(noisy 0 | positive) and ρ₋ = P(noisy 1 | negative). The fraction of rows with noisy label 1 is
    s = π(1 − ρ₊) + (1 − π)ρ₋. The class priors are θ = π(1 − ρ₊)/s and θ′ = πρ₊/(1 − s) (Menon, van Rooyen, Ong and
    Williamson, ICML 2015). Pass either the class prior π or the fraction s, which can be computed from the labels.

    >>> from_noise_rates(0.2, 0.1, class_prior=0.5)
    (0.888..., 0.181...)
    """
    _check_fraction(rho_plus, "rho_plus"), _check_fraction(rho_minus, "rho_minus")
    informative = 1 - rho_plus - rho_minus
    if abs(informative) < 1e-9:
        raise ValueError(f"rho_plus + rho_minus must not be 1, got {rho_plus:g} + {rho_minus:g}; correct the rates.")
    if (class_prior is None) == (marked_fraction is None):
        raise ValueError("pass exactly one of class_prior and marked_fraction.")
    if class_prior is None:
        assert marked_fraction is not None
        class_prior = (_check_inside(marked_fraction, "marked_fraction") - rho_minus) / informative
        if not 0 < class_prior < 1:
            low, high = sorted((rho_minus, 1 - rho_plus))
            raise ValueError(
                f"marked_fraction={marked_fraction:g} is not possible with rho_plus={rho_plus:g} and "
                f"rho_minus={rho_minus:g}; it must lie between {low:g} and {high:g}."
            )
    pi = _check_inside(class_prior, "class_prior")
    marked = pi * (1 - rho_plus) + (1 - pi) * rho_minus
    if not 0 < marked < 1:
        raise ValueError(
            f"rho_plus={rho_plus:g} and rho_minus={rho_minus:g} give every row the same noisy label, so one set "
            "is empty; check the rates."
        )
    return check_set_priors((pi * (1 - rho_plus) / marked, pi * rho_plus / (1 - marked)))


def to_noise_rates(set_priors: SetPriors, marked_fraction: float) -> NoiseRates:
    """Return the noise rates ρ₊ and ρ₋ and the class prior π; ``marked_fraction`` is the fraction of rows in set 0.

    >>> to_noise_rates((0.75, 0.25), marked_fraction=0.5)
    NoiseRates(rho_plus=0.25, rho_minus=0.25, class_prior=0.5)
    """
    theta, theta_prime = check_set_priors(set_priors)
    s = _check_inside(marked_fraction, "marked_fraction")
    pi = s * theta + (1 - s) * theta_prime
    return NoiseRates((1 - s) * theta_prime / pi, s * (1 - theta) / (1 - pi), pi)


def from_sensitivity(sensitivity: float, specificity: float, prevalence: float) -> SetPriors:
    """Return the class priors of the rows with a positive test result (θ) and with a negative test result (θ′).

    >>> from_sensitivity(0.9, 0.95, prevalence=0.1)
    (0.666..., 0.0115...)
    """
    _check_fraction(sensitivity, "sensitivity"), _check_fraction(specificity, "specificity")
    _check_inside(prevalence, "prevalence")
    if abs(sensitivity + specificity - 1) < 1e-9:
        raise ValueError(
            f"sensitivity + specificity must not be 1, got {sensitivity:g} + {specificity:g}: the test "
            "result would be independent of the class, and both sets would have the same class prior."
        )
    return from_noise_rates(1 - sensitivity, 1 - specificity, class_prior=prevalence)


def to_sensitivity(set_priors: SetPriors, marked_fraction: float) -> DiagnosticAccuracy:
    """Return sensitivity, specificity and prevalence; ``marked_fraction`` is the fraction of positive test results.

    >>> to_sensitivity((0.75, 0.25), marked_fraction=0.5)
    DiagnosticAccuracy(sensitivity=0.75, specificity=0.75, prevalence=0.5)
    """
    rho_plus, rho_minus, pi = to_noise_rates(set_priors, marked_fraction)
    return DiagnosticAccuracy(1 - rho_plus, 1 - rho_minus, pi)


def from_predictive_values(precision: float, npv: float) -> SetPriors:
    """Return the class priors of the rows that a rule marks as positive (θ) and of the other rows (θ′).

    >>> from_predictive_values(precision=0.9, npv=0.75)
    (0.9, 0.25)
    """
    return check_set_priors((_check_fraction(precision, "precision"), 1 - _check_fraction(npv, "npv")))


def to_predictive_values(set_priors: SetPriors) -> PredictiveValues:
    """Return the precision and the negative predictive value of a rule that marks the rows of set 0 as positive.

    >>> to_predictive_values((0.9, 0.25))
    PredictiveValues(precision=0.9, npv=0.75)
    """
    theta, theta_prime = check_set_priors(set_priors)
    return PredictiveValues(theta, 1 - theta_prime)


def from_case_control(class_prior: float) -> SetPriors:
    """Return (θ, θ′) for positive-unlabeled data with separate samples of the positives and of the population.

    >>> from_case_control(0.3)
    (1.0, 0.3)
    """
    return 1.0, _check_inside(class_prior, "class_prior")


def from_censoring(
    labeled_fraction: float, *, class_prior: float | None = None, label_frequency: float | None = None
) -> SetPriors:
    """Return (θ, θ′) for positive-unlabeled data from a single sample in which some positives are labeled.

    Set 0 contains the labeled rows, and set 1 contains the unlabeled rows, which have a lower prior than the
    population. If ℓ is the fraction of rows that are labeled and π is the class prior of all rows, then
    θ′ = (π − ℓ)/(1 − ℓ), and the label frequency is c = ℓ/π (Elkan and Noto, KDD 2008). Pass either π or c.

    >>> from_censoring(0.1, class_prior=0.4)
    (1.0, 0.333...)
    """
    _check_inside(labeled_fraction, "labeled_fraction")
    if (class_prior is None) == (label_frequency is None):
        raise ValueError("pass exactly one of class_prior and label_frequency (labeled fraction of positives).")
    if class_prior is None:
        assert label_frequency is not None
        if _check_fraction(label_frequency, "label_frequency") == 0:
            raise ValueError("label_frequency=0 means that no rows are labeled, but labeled_fraction is above 0.")
        class_prior = labeled_fraction / label_frequency
    if not labeled_fraction <= class_prior < 1:
        raise ValueError(
            f"class_prior must be at least labeled_fraction={labeled_fraction:g} and below 1, got {class_prior:g}; "
            "all labeled rows are positive."
        )
    return check_set_priors((1.0, (class_prior - labeled_fraction) / (1 - labeled_fraction)))


def to_censoring(set_priors: SetPriors, labeled_fraction: float) -> CensoredLabels:
    """Return the class prior of all rows and the label frequency, given the class prior of the unlabeled rows.

    >>> to_censoring((1.0, 0.5), labeled_fraction=0.5)
    CensoredLabels(class_prior=0.75, label_frequency=0.666...)
    """
    theta, theta_prime = check_set_priors(set_priors)
    fraction = _check_inside(labeled_fraction, "labeled_fraction")
    if theta != 1:
        raise ValueError(f"set 0 contains only labeled positives, so its class prior must be 1, got {theta:g}.")
    class_prior = fraction + (1 - fraction) * theta_prime
    return CensoredLabels(class_prior, fraction / class_prior)


def from_mixture_proportions(kappa_10: float, kappa_01: float) -> SetPriors:
    """Convert the mixture proportions of two sets with mutually irreducible classes to class priors, with θ > θ′.

    >>> from_mixture_proportions(0.5, 0.5)
    (0.666..., 0.333...)
    """
    for value, name in ((kappa_10, "kappa_10"), (kappa_01, "kappa_01")):
        if _check_fraction(value, name) == 1:
            raise ValueError(f"{name}=1 means that the sets are identical and have the same class prior.")
    theta, theta_prime = solve_proportions(kappa_10, kappa_01)
    return check_set_priors((float(theta), float(theta_prime)))


def to_mixture_proportions(set_priors: SetPriors) -> tuple[float, float]:
    """Return the mixture proportions κ(P₁ | P₀) and κ(P₀ | P₁) for mutually irreducible classes and θ > θ′.

    >>> to_mixture_proportions((0.75, 0.5))
    (0.5, 0.666...)
    """
    theta, theta_prime = check_set_priors(set_priors)
    if theta < theta_prime:
        raise ValueError(f"set 0 must have the higher prior, got θ = {theta:g} < θ′ = {theta_prime:g}; swap the sets.")
    return (1 - theta) / (1 - theta_prime), theta_prime / theta


def _check_fraction(value: float, name: str) -> float:
    if not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value!r}; write 80% as 0.8.")
    return float(value)


def _check_inside(value: float, name: str) -> float:
    if not 0 < _check_fraction(value, name) < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}.")
    return float(value)
