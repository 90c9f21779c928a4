"""scikit-learn's numeric transformers as modules that map float64 rows (n, d) to float64 rows (n, d′).

`fold_transformer` looks the type of a fitted transformer up in a table; `register_transformer` adds to it. What is not
in the table is refused by name. Types are compared exactly, since a subclass may compute something else.

A row that the transformer itself would refuse (an infinite value, or a missing one where it takes none) cannot be
refused by a graph: its columns become infinite, which the end of the graph turns into a score of NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted
from torch import nn

from uulearn.export.columns import Guarded, Imputed, Line, Picked, Projected, SideBySide
from uulearn.export.quantiles import Quantiles

Fold = Callable[[Any, str], nn.Module]

_FOLDS: dict[type, Fold] = {}
_UNCHECKED: set[type] = set()


def register_transformer(kind: type, *, checks_rows: bool = True) -> Callable[[Fold], Fold]:
    """Say how a fitted transformer becomes a module.

    The decorated function gets the transformer and its name (for errors) and returns a module from float64 rows
    (n, d) to float64 rows (n, d′), made of operations that ONNX has. A later registration replaces an earlier one.

    Parameters
    ----------
    kind : type
        Of the transformer, compared exactly.
    checks_rows : bool
        Whether it refuses rows with infinite values, and with missing ones unless its scikit-learn tags say
        ``allow_nan``. What hands rows on to other transformers does not.

    Examples
    --------
    >>> import torch
    >>> class Doubler(FunctionTransformer):
    ...     def transform(self, X):
    ...         return 2 * X
    >>> @register_transformer(Doubler, checks_rows=False)
    ... def _doubler(transformer, name):
    ...     return Line(factor=2.0)
    >>> fold_transformer(Doubler(), "twice")(torch.ones(1, 2, dtype=torch.float64)).tolist()
    [[2.0, 2.0]]
    """

    def register(fold: Fold) -> Fold:
        _FOLDS[kind] = fold
        (_UNCHECKED.discard if checks_rows else _UNCHECKED.add)(kind)
        return fold

    return register


def fold_transformer(transformer: Any, name: str) -> nn.Module:
    """The module of a fitted transformer; ``name`` is what errors call it."""
    if transformer is None or (isinstance(transformer, str) and transformer == "passthrough"):
        return nn.Identity()
    kind = type(transformer)
    if kind not in _FOLDS:
        raise refusal(transformer, name, "is not among the numeric transformers that a graph can hold")
    check_is_fitted(transformer)
    folded = _FOLDS[kind](transformer, name)
    return folded if kind in _UNCHECKED else Guarded(folded, bool(get_tags(transformer).input_tags.allow_nan))


def refusal(transformer: Any, name: str, why: str) -> ValueError:
    """One sentence: which step, why not, and what to do."""
    return ValueError(
        f"step {name!r} ({type(transformer).__name__}) {why}; export the classifier alone, without the pipeline, and "
        "apply the pipeline in Python before it."
    )


# ------------------------------------------------------------------------------------------------------ one at a time


@register_transformer(StandardScaler)
def _standard(scaler: Any, name: str) -> nn.Module:
    return Line(shift=scaler.mean_ if scaler.with_mean else None, factor=1 / scaler.scale_ if scaler.with_std else None)


@register_transformer(RobustScaler)
def _robust(scaler: Any, name: str) -> nn.Module:
    return Line(
        shift=scaler.center_ if scaler.with_centering else None,
        factor=1 / scaler.scale_ if scaler.with_scaling else None,
    )


@register_transformer(MinMaxScaler)
def _min_max(scaler: Any, name: str) -> nn.Module:
    low, high = scaler.feature_range
    return Line(factor=scaler.scale_, offset=scaler.min_, limits=(float(low), float(high)) if scaler.clip else None)


@register_transformer(MaxAbsScaler)
def _max_abs(scaler: Any, name: str) -> nn.Module:
    return Line(factor=1 / scaler.scale_, limits=(-1.0, 1.0) if getattr(scaler, "clip", False) else None)


@register_transformer(SimpleImputer)
def _simple_imputer(imputer: Any, name: str) -> nn.Module:
    missing, statistics = imputer.missing_values, imputer.statistics_.tolist()
    if not all(isinstance(value, Real) for value in (missing, *statistics)):
        raise refusal(imputer, name, "imputes or looks for values that are no numbers")
    values = np.array(statistics, dtype=np.float64)
    kept = np.flatnonzero(~np.isnan(values))  # a column without any value has none, unless empty ones are to be kept
    return Imputed(values[kept], float(missing), kept, imputer.indicator_.features_ if imputer.add_indicator else [])


@register_transformer(PCA)
def _pca(pca: Any, name: str) -> nn.Module:
    divisor: Any = 1.0
    if pca.whiten:
        spread = np.sqrt(pca.explained_variance_)
        divisor = np.maximum(spread, np.finfo(spread.dtype).eps)
    components = np.asarray(pca.components_, dtype=np.float64)
    return Projected(components, components @ np.asarray(pca.mean_, dtype=np.float64), divisor)


@register_transformer(TruncatedSVD)
def _svd(svd: Any, name: str) -> nn.Module:
    return Projected(svd.components_)


@register_transformer(QuantileTransformer)
def _quantiles(transformer: Any, name: str) -> nn.Module:
    return Quantiles(transformer.quantiles_, transformer.references_, transformer.output_distribution == "normal")


@register_transformer(VarianceThreshold, checks_rows=False)
def _variance(selector: Any, name: str) -> nn.Module:
    return Picked(selector.get_support(indices=True))


# ------------------------------------------------------------------------------------------------------- put together


@register_transformer(FunctionTransformer, checks_rows=False)
def _function(transformer: Any, name: str) -> nn.Module:
    if transformer.func is not None or transformer.validate:
        raise refusal(transformer, name, "calls a Python function")
    return nn.Identity()  # what scikit-learn puts in the place of "passthrough"


@register_transformer(Pipeline, checks_rows=False)
def _pipeline(pipeline: Any, name: str) -> nn.Module:
    return nn.Sequential(*(fold_transformer(step, _inside(name, own)) for own, step in pipeline.steps))


@register_transformer(ColumnTransformer, checks_rows=False)
def _columns(transformer: Any, name: str) -> nn.Module:
    branches = []
    for own, step, _ in transformer.transformers_:
        index = transformer._transformer_to_input_indices[own]
        if len(index) and not (isinstance(step, str) and step == "drop"):
            weight = (transformer.transformer_weights or {}).get(own)
            branches.append(_branch(step, _inside(name, own), weight, Picked(index)))
    return SideBySide(branches)


@register_transformer(FeatureUnion, checks_rows=False)
def _union(union: Any, name: str) -> nn.Module:
    weights = union.transformer_weights or {}
    steps = [(own, step) for own, step in union.transformer_list if not (isinstance(step, str) and step == "drop")]
    return SideBySide([_branch(step, _inside(name, own), weights.get(own), nn.Identity()) for own, step in steps])


def _branch(step: Any, name: str, weight: float | None, columns: nn.Module) -> nn.Module:
    folded = nn.Sequential(columns, fold_transformer(step, name))
    return folded if weight is None else folded.append(Line(factor=weight))


def _inside(outer: str, own: str) -> str:
    return f"{outer}/{own}" if outer else own
