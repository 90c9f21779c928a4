"""Convert scikit-learn's numeric transformers to steps on float64 rows.

`convert_transformer` looks up the type of a transformer in a table; `register_transformer` adds a type to the table.
Other types raise an error. Types must match exactly, because a subclass may compute different values.

A graph cannot reject a row that the transformer would reject, such as one with an infinite value. Instead, all columns
of such a row become infinite, and the last step of the graph sets its score to NaN.
"""

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

from uulearn.export import steps
from uulearn.export.steps import Step

Converter = Callable[[Any, str], Step]

_CONVERTERS: dict[type, Converter] = {}
_UNCHECKED: set[type] = set()


def register_transformer(kind: type, *, checks_rows: bool = True) -> Callable[[Converter], Converter]:
    """Register a function that converts a fitted transformer for ONNX.

    The decorated function receives the transformer and its name (for error messages). It returns a function or a
    `torch.nn.Module` that maps float64 rows (n, d) to float64 rows (n, d′) with ONNX operations. ``kind`` is the exact
    type of the transformer. ``checks_rows`` states whether the transformer rejects rows with infinite values, and also
    rows with missing values unless its scikit-learn tags include ``allow_nan``.

    >>> import torch
    >>> class Doubler(FunctionTransformer):
    ...     def transform(self, X):
    ...         return 2 * X
    >>> @register_transformer(Doubler, checks_rows=False)
    ... def _doubler(transformer, name):
    ...     return lambda x: 2 * x
    >>> convert_transformer(Doubler(), "twice")(torch.ones(1, 2, dtype=torch.float64)).tolist()
    [[2.0, 2.0]]
    """

    def register(convert: Converter) -> Converter:
        _CONVERTERS[kind] = convert
        (_UNCHECKED.discard if checks_rows else _UNCHECKED.add)(kind)
        return convert

    return register


def convert_transformer(transformer: Any, name: str) -> Step:
    """Convert a fitted transformer to a step; ``name`` is its name in error messages."""
    if transformer is None or (isinstance(transformer, str) and transformer == "passthrough"):
        return steps.identity
    kind = type(transformer)
    if kind not in _CONVERTERS:
        raise refusal(transformer, name, "is not one of the transformers that can be exported")
    check_is_fitted(transformer)
    step = _CONVERTERS[kind](transformer, name)
    if kind in _UNCHECKED:
        return step
    return steps.reject_non_finite(step, bool(get_tags(transformer).input_tags.allow_nan))


def refusal(transformer: Any, name: str, reason: str) -> ValueError:
    """Return the error for a transformer that cannot be exported."""
    return ValueError(
        f"step {name!r} ({type(transformer).__name__}) {reason}; export the classifier without the pipeline, and apply "
        "the pipeline in Python."
    )


@register_transformer(StandardScaler)
@register_transformer(RobustScaler)
def _centered(scaler: Any, name: str) -> Step:
    robust = isinstance(scaler, RobustScaler)
    centers, scales = (scaler.with_centering, scaler.with_scaling) if robust else (scaler.with_mean, scaler.with_std)
    shift = (scaler.center_ if robust else scaler.mean_) if centers else 0.0
    return steps.affine(shift=shift, factor=1 / scaler.scale_ if scales else 1.0)


@register_transformer(MinMaxScaler)
def _min_max(scaler: Any, name: str) -> Step:
    low, high = scaler.feature_range
    limits = (float(low), float(high)) if scaler.clip else None
    return steps.affine(factor=scaler.scale_, offset=scaler.min_, limits=limits)


@register_transformer(SimpleImputer)
def _simple_imputer(imputer: Any, name: str) -> Step:
    missing, statistics = imputer.missing_values, imputer.statistics_.tolist()
    if not all(isinstance(value, Real) for value in (missing, *statistics)):
        raise refusal(imputer, name, "imputes or replaces values that are not numbers")
    values = np.array(statistics, dtype=np.float64)
    kept = np.flatnonzero(~np.isnan(values))  # by default, scikit-learn drops columns without values
    indicated = imputer.indicator_.features_ if imputer.add_indicator else []
    return steps.impute(values[kept], float(missing), kept, indicated)


@register_transformer(PCA)
def _pca(pca: Any, name: str) -> Step:
    divisor: Any = 1.0
    if pca.whiten:
        spread = np.sqrt(pca.explained_variance_)
        divisor = np.maximum(spread, np.finfo(spread.dtype).eps)
    components = np.asarray(pca.components_, dtype=np.float64)
    return steps.project(components, components @ np.asarray(pca.mean_, dtype=np.float64), divisor)


@register_transformer(QuantileTransformer)
def _quantiles(transformer: Any, name: str) -> Step:
    normal = transformer.output_distribution == "normal"
    return steps.quantile_levels(transformer.quantiles_, transformer.references_, normal)


@register_transformer(FunctionTransformer, checks_rows=False)
def _function(transformer: Any, name: str) -> Step:
    if transformer.func is not None or transformer.validate:
        raise refusal(transformer, name, "calls a Python function")
    return steps.identity  # scikit-learn replaces "passthrough" with this transformer


@register_transformer(Pipeline, checks_rows=False)
def _pipeline(pipeline: Any, name: str) -> Step:
    return steps.chain([convert_transformer(step, f"{name}/{own}".strip("/")) for own, step in pipeline.steps])


@register_transformer(ColumnTransformer, checks_rows=False)
def _columns(transformer: Any, name: str) -> Step:
    index = transformer._transformer_to_input_indices
    branches = [
        (own, step, steps.select_columns(index[own])) for own, step, _ in transformer.transformers_ if len(index[own])
    ]
    return _concatenate(transformer, branches, name)


@register_transformer(FeatureUnion, checks_rows=False)
def _union(union: Any, name: str) -> Step:
    return _concatenate(union, [(own, step, steps.identity) for own, step in union.transformer_list], name)


def _concatenate(container: Any, branches: list[tuple[str, Any, Step]], name: str) -> Step:
    """Concatenate the columns of all branches, each multiplied by its weight."""
    weights, converted = container.transformer_weights or {}, []
    for own, step, columns in branches:
        if not (isinstance(step, str) and step == "drop"):
            scale = [steps.affine(factor=weights[own])] if own in weights else []
            converted.append(steps.chain([columns, convert_transformer(step, f"{name}/{own}".strip("/")), *scale]))
    return steps.concatenate(converted)


_CONVERTERS |= {
    MaxAbsScaler: lambda scaler, name: steps.affine(
        factor=1 / scaler.scale_, limits=(-1.0, 1.0) if getattr(scaler, "clip", False) else None
    ),
    TruncatedSVD: lambda svd, name: steps.project(svd.components_),
    VarianceThreshold: lambda selector, name: steps.select_columns(selector.get_support(indices=True)),
}
_UNCHECKED.add(VarianceThreshold)
