"""Show a fitted classifier in a notebook: scikit-learn's diagram and, below it, the results of the fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from uulearn.estimator.auto import describe_comparison
from uulearn.estimator.parameters import is_auto
from uulearn.estimator.summary import describe_sets
from uulearn.markup import notebook
from uulearn.markup.text import label
from uulearn.metrics import Evaluation, Verdict

if TYPE_CHECKING:
    from uulearn.estimator.trained import TrainedClassifier

MAX_COLUMNS = 8
"""Maximum number of column names in the output."""
MAX_COLUMN_WIDTH = 30
"""Maximum length of a column name in the output, in characters."""


class ResultsBelowDiagram:
    """Mixin for scikit-learn estimators whose notebook output has results below scikit-learn's diagram.

    The output follows ``sklearn.set_config(display=...)``: with ``"text"``, there is no HTML.
    """

    def results_html(self) -> str:
        """Return the results of the fit as HTML; an empty string if the estimator is not fitted."""
        raise NotImplementedError

    @property
    def _repr_html_(self) -> Callable[[], str]:
        diagram: Callable[[], str] = super()._repr_html_  # type: ignore[misc]  # AttributeError if the display is text
        return lambda: diagram() + self.results_html()

    def _repr_mimebundle_(self, **known: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**known)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += self.results_html()
        return bundle


def result_parts(classifier: TrainedClassifier) -> list[Markup]:
    """Return the results of a fitted classifier: estimates with intervals, warnings, facts and the training curve."""
    parts = [notebook.heading("Estimated without labels")]
    evaluation = classifier.out_of_fold_evaluation_
    if evaluation is not None:
        parts += [*evaluation.html_parts(), *_verdict(evaluation, classifier.target_prior)]
    elif classifier.set_priors is None:
        parts.append(notebook.note("The class priors are unknown, so only the order of the scores has a meaning."))
    elif any(classifier.held_out_sizes_):
        error = _held_out_error(classifier)
        parts.append(
            notebook.note(
                f"{error}For an estimate with an interval, call evaluate(X, sets=sets) on rows not used for training."
            )
        )
    else:
        parts.append(
            notebook.warning(
                "no rows were held out, so the accuracy is not known; call evaluate(X, sets=sets) on other rows."
            )
        )
    parts.append(notebook.fact_table(_facts(classifier)))
    return parts + classifier.history_.html_parts()


def _verdict(evaluation: Evaluation, target_prior: float) -> list[Markup]:
    """Warn if the classifier may be no better than a constant prediction, or if no accuracy fits the priors."""
    verdict = evaluation.verdict(target_prior)
    if verdict is Verdict.BETTER:
        return []
    if verdict is Verdict.INCONSISTENT:
        return [notebook.warning("no accuracy is consistent with these class priors; check them and the rows.")]
    which = "worse than" if verdict is Verdict.WORSE else "possibly no better than"
    constant = f"always predicting the more frequent class ({max(target_prior, 1 - target_prior):.1%} correct)"
    return [notebook.warning(f"the model is {which} {constant}.")]


def _held_out_error(classifier: TrainedClassifier) -> str:
    best = classifier.history_.best_epoch
    if best is None:
        return ""
    error = max(0.0, classifier.history_[best - 1]["validation_zero_one"])  # unbiased, so it can be negative
    return f"Error on the held-out rows in the best epoch: {error:.1%} (too low, because these rows chose the epoch). "


def _facts(classifier: TrainedClassifier) -> list[tuple[str, str]]:
    sets = describe_sets(classifier.set_sizes_, classifier.set_priors)
    facts = [("sets", sets), ("target prior", f"{classifier.target_prior:.1%} positive")]
    names = list(map(str, getattr(classifier, "feature_names_in_", [])))
    if names:
        more = f" and {len(names) - MAX_COLUMNS:,} more" if len(names) > MAX_COLUMNS else ""
        shown = ", ".join(label(name, MAX_COLUMN_WIDTH) for name in names[:MAX_COLUMNS])
        facts.append(("columns", f"{len(names):,}: {shown}{more}"))
    compared = classifier.comparison_
    known = classifier.fitted_params()
    model = known["model"] if isinstance(known["model"], str) else type(classifier.model_).__name__
    if compared is not None and not all(entry.risk is None for entry in compared):
        facts.append(("model", describe_comparison(compared)))
    elif not is_auto(model):
        facts.append(("model", model))
    if (number := known["n_estimators"]) != 1:
        facts.append(("ensemble", f"{number} models, each trained without one fold"))
    if classifier.consistency_ is not None:
        facts.append(("consistency", str(classifier.consistency_)))
    used = "passed for evaluation; training did not use them" if classifier.history_.labels_used else "none used"
    return [*facts, ("labels", used)]
