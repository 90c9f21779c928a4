"""Define the classifiers of the study of data frames by name.

A contender trains on two data frames, one for each set, with their class priors and the class prior π of the target
population. Its encoding is fitted on the rows of both sets. ``linear`` and ``mlp`` are `UUClassifier` with the encoder
of `uulearn fit`; the other MLPs differ only in the encoding. Forests and gradient boosting on sets are trained to
predict the set of a row (`SurrogateSetClassifier`), on columns whose categories are replaced by numbers. The
contender "supervised trees" gets the same rows with their labels, as sets with the priors (1, 0).
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
from contenders import default_parameters, switched_on
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    StandardScaler,
)

from uulearn import UUClassifier
from uulearn.estimator.boosting import TreeParameters
from uulearn.surrogate import SurrogateSetClassifier
from uulearn.surrogate.classifier import default_estimator
from uulearn.tabular.encoder import TableEncoder

CATEGORIES = 30  # maximum number of indicator columns of a text column
BINS = 16  # number of quantile bins of the piecewise-linear encoding
QUICK_EPOCHS = 2
FOREST = {"n_estimators": 300, "min_samples_leaf": 10, "n_jobs": 1}
"""Chosen with the labels of the test rows, which favors the forest: of four settings on spambase, credit, flchain and
ames (500 rows per set, two seeds), leaves of 1, 1 (100 trees), 3 and 10 rows had mean accuracies of 84.0, 84.0, 85.5
and 85.9 at (0.8, 0.2), and of 73.7, 73.4, 75.1 and 77.6 at (0.6, 0.4)."""

Frame = Any
Parameters = dict[str, Any]
Transform = Callable[[Frame], NDArray[Any]]


class Fitted(Protocol):
    """A trained classifier of data frames."""

    def predict(self, frame: Frame) -> NDArray[np.int64]:
        """Return the predicted classes, shape (n,)."""

    def decision_function(self, frame: Frame) -> NDArray[Any]:
        """Return scores that are higher for rows that look positive, shape (n,)."""


Fit = Callable[[Frame, Frame, tuple[float, float], float, int], Fitted]
"""Maps two data frames, their class priors, π and the seed to a trained classifier."""


@dataclass(frozen=True)
class Contender:
    """A classifier of the study; ``parameters`` are stored, so that a changed default is a different contender."""

    name: str
    parameters: Parameters
    fit: Fit = field(compare=False)
    labeled: bool = False
    """Whether the two frames are the positive and the negative rows instead of the sets."""


@dataclass(frozen=True)
class Encoded:
    """A classifier of matrices with the encoding of its rows."""

    transform: Transform
    classifier: Any

    def predict(self, frame: Frame) -> NDArray[np.int64]:
        """Return the predicted classes, shape (n,)."""
        return np.asarray(self.classifier.predict(self.transform(frame)))

    def decision_function(self, frame: Frame) -> NDArray[Any]:
        """Return scores that are higher for rows that look positive, shape (n,)."""
        return np.asarray(self.classifier.decision_function(self.transform(frame)))


# ------------------------------------------------------------------------------------------------------------ encodings


def fit_table_encoder(first: Frame, second: Frame) -> Transform:
    """Return the encoding of `uulearn fit`, fitted on both sets."""
    encoder = TableEncoder().fit_sets(first, second)
    return lambda frame: np.asarray(encoder.transform(frame))


def fit_pipeline(make: Callable[[], Any]) -> Callable[[Frame, Frame], Transform]:
    """Return a function that fits a scikit-learn transformer on both sets."""

    def fit(first: Frame, second: Frame) -> Transform:
        transformer = make().fit(plain(pd.concat([first, second], ignore_index=True)))
        return lambda frame: np.asarray(transformer.transform(plain(frame)), dtype=np.float32)

    return fit


def plain(frame: Frame) -> Frame:
    """Return dates as numbers of days, and texts as Python objects with NaN for missing values."""
    columns = {}
    for name, column in frame.items():
        if pd.api.types.is_datetime64_any_dtype(column):
            columns[name] = (column - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
        elif pd.api.types.is_numeric_dtype(column):
            columns[name] = column.astype(np.float64)
        else:
            columns[name] = column.astype(object).where(column.notna(), np.nan)
    return pd.DataFrame(columns)


def numbers_and_categories(scale: Any) -> Any:
    """Return a transformer that scales numbers and converts texts to indicator columns.

    Missing numbers are replaced by the median and marked in an additional column.
    """
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), scale)
    marks = FunctionTransformer(lambda X: np.isnan(np.asarray(X, dtype=np.float64)).astype(np.float32))
    texts = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=CATEGORIES, sparse_output=False)
    is_number = make_column_selector(dtype_include="number")
    return make_column_transformer(
        (numbers, is_number),
        (marks, lambda frame: [name for name in is_number(frame) if frame[name].isna().any()]),
        (texts, make_column_selector(dtype_exclude="number")),
    )


def quantile_transformer() -> Any:
    """Return a transformer of numbers to a normal distribution, as scikit-learn does it."""
    return numbers_and_categories(_FewerQuantiles(output_distribution="normal"))


class _FewerQuantiles(QuantileTransformer):  # type: ignore[misc]
    """Transformer with at most as many quantiles as rows, which avoids a warning."""

    def fit(self, X: Any, y: Any = None) -> Any:
        self.n_quantiles = min(1000, len(X))
        return super().fit(X, y)


class PiecewiseLinear(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode a number x as one feature per quantile bin: 0 below the bin, 1 above it, and linear inside the bin.

    Gorishniy, Rubachev and Babenko, On Embeddings for Numerical Features in Tabular Deep Learning (2022), section 3.2.

    >>> PiecewiseLinear(2).fit(np.array([[0.0], [1.0], [3.0]])).transform(np.array([[0.5], [2.0], [5.0]]))
    array([[0.5, 0. ],
           [1. , 0.5],
           [1. , 1. ]])
    """

    def __init__(self, bins: int = BINS) -> None:
        self.bins = bins

    def fit(self, X: Any, y: Any = None) -> PiecewiseLinear:
        """Compute the quantiles of each column."""
        edges = [np.unique(np.quantile(column, np.linspace(0, 1, self.bins + 1))) for column in np.asarray(X).T]
        self.edges_ = [own if len(own) > 1 else np.append(own, own + 1) for own in edges]
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the features of all bins of all columns."""
        parts = []
        for column, edges in zip(np.asarray(X).T, self.edges_, strict=True):
            parts.append(((column[:, None] - edges[:-1]) / np.diff(edges)).clip(0, 1))
        return np.concatenate(parts, axis=1)


def piecewise_linear() -> Any:
    """Return the piecewise-linear encoding of numbers, centered, with indicator columns for texts."""
    return numbers_and_categories(make_pipeline(PiecewiseLinear(), StandardScaler(with_std=False)))


def table_vectorizer() -> Any:
    """Return the encoding that skrub recommends for estimators other than trees (`tabular_pipeline`)."""
    from skrub import DatetimeEncoder, SquashingScaler, TableVectorizer

    return make_pipeline(
        TableVectorizer(datetime=DatetimeEncoder(periodic_encoding="spline")),
        SimpleImputer(add_indicator=True, keep_empty_features=True),
        SquashingScaler(max_absolute_value=5),
    )


def fit_table_vectorizer(first: Frame, second: Frame) -> Transform:
    """Fit the encoding of skrub, which reads dates and texts itself."""
    transformer = table_vectorizer().fit(pd.concat([first, second], ignore_index=True))
    return lambda frame: np.asarray(transformer.transform(frame), dtype=np.float32)


def ordinal() -> Any:
    """Return numbers unchanged and texts as the number of their category; missing and new values are NaN."""
    texts = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan)
    return make_column_transformer((texts, make_column_selector(dtype_exclude="number")), remainder="passthrough")


# ----------------------------------------------------------------------------------------------------------- contenders


def uu_classifier(model: str, encode: Callable[[Frame, Frame], Transform], changes: Mapping[str, Any]) -> Fit:
    """Return the fit of `UUClassifier` on encoded rows; ``changes`` are changed parameters."""

    def fit(first: Frame, second: Frame, set_priors: tuple[float, float], target_prior: float, seed: int) -> Fitted:
        transform = encode(first, second)
        classifier = UUClassifier(
            set_priors, target_prior, model=model, device="cpu", progress=False, random_state=seed, **changes
        )
        return Encoded(transform, classifier.fit_sets(transform(first), transform(second)))

    return fit


def on_tables(model: str, changes: Mapping[str, Any]) -> Fit:
    """Return the fit of `UUClassifier` on tables, which it encodes itself, as ``uulearn fit`` does."""

    def fit(first: Frame, second: Frame, set_priors: tuple[float, float], target_prior: float, seed: int) -> Fitted:
        classifier = UUClassifier(
            set_priors, target_prior, model=model, device="cpu", progress=False, random_state=seed, **changes
        )
        return Encoded(lambda frame: frame, classifier.fit_sets(first, second))

    return fit


def on_sets(make: Callable[[int], Any]) -> Fit:
    """Return the fit of a scikit-learn classifier on the sets, whose probabilities are then converted."""

    def fit(first: Frame, second: Frame, set_priors: tuple[float, float], target_prior: float, seed: int) -> Fitted:
        transform = fit_pipeline(ordinal)(first, second)
        classifier = SurrogateSetClassifier(set_priors, target_prior, estimator=make(seed), random_state=seed)
        return Encoded(transform, classifier.fit_sets(transform(first), transform(second)))

    return fit


def supervised(make: Callable[[int], Any]) -> Fit:
    """Return the fit of a scikit-learn classifier on positive and negative rows, weighted to the class prior π."""

    def fit(first: Frame, second: Frame, set_priors: tuple[float, float], target_prior: float, seed: int) -> Fitted:
        transform = fit_pipeline(ordinal)(first, second)
        labels = np.repeat([1, 0], [len(first), len(second)])
        weights = np.where(labels == 1, target_prior / len(first), (1 - target_prior) / len(second)) * len(labels)
        rows = np.concatenate([transform(first), transform(second)])
        return Encoded(transform, make(seed).fit(rows, labels, sample_weight=weights))

    return fit


MLP_ENCODINGS: dict[str, Callable[[Frame, Frame], Transform]] = {
    "mlp": fit_table_encoder,
    "mlp, standard scaling": fit_pipeline(lambda: numbers_and_categories(StandardScaler())),
    "mlp, QuantileTransformer": fit_pipeline(quantile_transformer),
    "mlp, piecewise-linear": fit_pipeline(piecewise_linear),
    "mlp, skrub TableVectorizer": fit_table_vectorizer,
}
SKRUB = "mlp, skrub TableVectorizer"
SUPERVISED = "supervised trees"


def available(quick: bool = False) -> dict[str, Contender]:
    """Return all contenders by name, without that of skrub if skrub is not installed; ``quick`` trains briefly."""
    changes: Parameters = {"epochs": QUICK_EPOCHS} if quick else {}
    trees: Parameters = {"max_iter": 5} if quick else {}
    forest = FOREST | ({"n_estimators": 10} if quick else {})
    mlp = switched_on(default_parameters("mlp", changes))
    own_trees = {"trees": dataclasses.asdict(TreeParameters())}
    found = [
        Contender("linear", switched_on(default_parameters("linear", changes)), on_tables("linear", changes)),
        *(
            Contender(model, switched_on(default_parameters(model, changes)) | own_trees, on_tables(model, changes))
            for model in ("boosting", "auto")
        ),
        *(Contender(name, mlp, uu_classifier("mlp", encode, changes)) for name, encode in MLP_ENCODINGS.items()),
        _trees("random forest on sets", lambda seed: RandomForestClassifier(**forest, random_state=seed), on_sets),
        _trees("boosting on sets", lambda seed: default_estimator(seed).set_params(**trees), on_sets),
        _trees(SUPERVISED, lambda seed: HistGradientBoostingClassifier(**trees, random_state=seed), supervised),
    ]
    has_skrub = importlib.util.find_spec("skrub") is not None
    return {one.name: one for one in found if has_skrub or one.name != SKRUB}


def _trees(name: str, make: Callable[[int], Any], train: Callable[[Callable[[int], Any]], Fit]) -> Contender:
    estimator = make(0).set_params(random_state=None)
    return Contender(name, {"estimator": " ".join(repr(estimator).split())}, train(make), name == SUPERVISED)
