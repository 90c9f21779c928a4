"""Read the rows of the sets for a fit; data frames and Arrow tables are encoded by `uulearn.tabular.TableEncoder`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.validation import _num_samples
from torch import Tensor

from uulearn.data import inputs
from uulearn.data.groups import SetGroups
from uulearn.data.inputs import FitData
from uulearn.estimator.parameters import is_auto
from uulearn.estimator.plan import takes_any_shape

if TYPE_CHECKING:
    import pandas as pd

    from uulearn.tabular import TableEncoder

STACKLEVEL = 7  # from a warning of the encoder to the caller of `UUClassifier.fit`


def read_two_tables(
    parameters: Mapping[str, Any], X0: Any, X1: Any, *, stacklevel: int = STACKLEVEL, **held_out: Any
) -> FitData:
    """Read both sets from separate tables; ``parameters`` are the parameters of `uulearn.UUClassifier`.

    >>> from uulearn import UUClassifier
    >>> import numpy as np
    >>> read_two_tables(UUClassifier((0.8, 0.2)).get_params(), np.ones((3, 2)), np.zeros((4, 2))).data.sizes
    (3, 4)
    """
    encoder = _fit_encoder(parameters, stacklevel, lambda: (X0, X1), X0, X1)
    return inputs.read_two_tables(X0, X1, any_shape=takes_any_shape(parameters["model"]), encoder=encoder, **held_out)


def read_joint_table(
    parameters: Mapping[str, Any], X: Any, sets: Any, *, stacklevel: int = STACKLEVEL, **held_out: Any
) -> FitData:
    """Read all sets from one table; ``sets`` contains the set of each row. More than two sets form two groups."""
    priors, groups = parameters["set_priors"], None
    if priors is not None and len(priors) > 2:
        numbers = inputs.read_sets(sets, _num_samples(X), len(priors))
        inputs.check_training_sets(numbers, len(priors))
        groups = SetGroups.from_sets(numbers, priors, parameters["target_prior"])
        parameters = {**parameters, "set_priors": groups.priors(numbers)}
    encoder = _fit_encoder(parameters, stacklevel, lambda: _split(X, sets, groups), X)
    any_shape = takes_any_shape(parameters["model"])
    return inputs.read_joint_table(X, sets, any_shape=any_shape, encoder=encoder, groups=groups, **held_out)


def read_tables(parameters: Mapping[str, Any], tables: Sequence[Any], **held_out: Any) -> FitData:
    """Read one table per set; more than two tables are copied into one."""
    priors = parameters["set_priors"]
    n_sets = 2 if priors is None else len(priors)
    if len(tables) != n_sets:
        raise ValueError(
            f"fit_sets got {len(tables)} tables for {n_sets} set_priors; pass one table per set, in the order of the "
            "class priors."
        )
    if n_sets == 2:
        return read_two_tables(parameters, *tables, stacklevel=STACKLEVEL + 1, **held_out)
    sets = np.repeat(np.arange(n_sets), [_num_samples(table) for table in tables])
    return read_joint_table(parameters, _concatenate(tables), sets, stacklevel=STACKLEVEL + 1, **held_out)


def _concatenate(tables: Sequence[Any]) -> Any:
    """Return the rows of all tables as one table: a frame, a tensor, a sparse matrix or an array."""
    if all(map(is_table, tables)):
        import pandas as pd

        from uulearn.tabular.frames import to_frame

        frames = [to_frame(table, f"X{which}") for which, table in enumerate(tables)]
        for which, frame in enumerate(frames):
            if set(frame.columns) != set(frames[0].columns):
                odd = sorted(set(frame.columns) ^ set(frames[0].columns))[0]
                raise ValueError(f"column {odd!r} is not in both X0 and X{which}; pass tables with the same columns.")
        return pd.concat(frames, ignore_index=True)
    shapes = [tuple(np.shape(table))[1:] for table in tables]
    for which, (table, shape) in enumerate(zip(tables, shapes, strict=True)):
        if is_table(table) != is_table(tables[0]):
            raise ValueError(f"X0 is a {type(tables[0]).__name__}, but X{which} is a {type(table).__name__}.")
        if shape != shapes[0]:
            raise ValueError(
                f"X0 has rows of shape {shapes[0]}, but X{which} has shape {shape}; all sets need the same columns."
            )
    if all(isinstance(table, Tensor) for table in tables):
        return torch.cat(list(tables))
    if any(map(sparse.issparse, tables)):
        return sparse.vstack(tables, format="csr")
    return np.concatenate([np.asarray(table) for table in tables])


def is_table(X: Any) -> bool:
    """Return whether X is a pandas data frame or has the Arrow stream interface (polars, pyarrow)."""
    pandas = sys.modules.get("pandas")  # not imported here: without it, X is not a data frame
    if pandas is not None and isinstance(X, pandas.DataFrame):
        return True
    return hasattr(X, "__arrow_c_stream__") and len(getattr(X, "shape", ())) == 2


def _fit_encoder(
    parameters: Mapping[str, Any], stacklevel: int, sets: Callable[[], tuple[Any, Any]], *tables: Any
) -> TableEncoder | None:
    """Return an encoder fitted to both sets, or None if the parameter ``encoder`` says that none is needed."""
    given, found = parameters["encoder"], [*map(is_table, tables)]
    if given is None or (is_auto(given) and not any(found)):
        return None
    if any(found) and not all(found):
        names = " and ".join(f"set {which} is a {type(X).__name__}" for which, X in enumerate(tables))
        raise ValueError(f"{names}; pass two tables with the same columns, or two arrays.")
    from uulearn.tabular import TableEncoder

    encoder: TableEncoder = TableEncoder() if is_auto(given) else clone(given)
    seed = parameters["random_state"]
    seed = int(seed) if isinstance(seed, Integral) else 0
    return encoder.fit_sets(*sets(), set_priors=parameters["set_priors"], seed=seed, stacklevel=stacklevel)


def _split(X: Any, sets: Any, groups: SetGroups | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of each set, or of each group of sets, as two frames."""
    from uulearn.tabular.frames import to_frame

    frame = to_frame(X, "X")
    if groups is None:
        membership = inputs.read_sets(sets, len(frame))
        inputs.check_both_sets(membership)
    else:
        membership = groups.of_rows(inputs.read_sets(sets, len(frame), len(groups.set_priors)))
    return frame[(membership == 0).numpy()], frame[(membership == 1).numpy()]
