"""Read the rows of both sets for a fit; data frames and Arrow tables are encoded by `uulearn.tabular.TableEncoder`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from uulearn.data import inputs
from uulearn.data.inputs import FitData
from uulearn.estimator.parameters import is_auto
from uulearn.estimator.plan import takes_any_shape

if TYPE_CHECKING:
    import pandas as pd

    from uulearn.tabular import TableEncoder

STACKLEVEL = 7  # from a warning of the encoder to the caller of `UUClassifier.fit`


def read_two_tables(parameters: Mapping[str, Any], X0: Any, X1: Any, **held_out: Any) -> FitData:
    """Read both sets from separate tables; ``parameters`` are the parameters of `uulearn.UUClassifier`.

    >>> from uulearn import UUClassifier
    >>> import numpy as np
    >>> read_two_tables(UUClassifier((0.8, 0.2)).get_params(), np.ones((3, 2)), np.zeros((4, 2))).data.sizes
    (3, 4)
    """
    encoder = _fit_encoder(parameters, lambda: (X0, X1), X0, X1)
    return inputs.read_two_tables(X0, X1, any_shape=takes_any_shape(parameters["model"]), encoder=encoder, **held_out)


def read_joint_table(parameters: Mapping[str, Any], X: Any, sets: Any, **held_out: Any) -> FitData:
    """Read both sets from one table; ``sets`` contains the set of each row."""
    encoder = _fit_encoder(parameters, lambda: _split(X, sets), X)
    return inputs.read_joint_table(X, sets, any_shape=takes_any_shape(parameters["model"]), encoder=encoder, **held_out)


def is_table(X: Any) -> bool:
    """Return whether X is a pandas data frame or has the Arrow stream interface (polars, pyarrow)."""
    pandas = sys.modules.get("pandas")  # not imported here: without it, X is not a data frame
    if pandas is not None and isinstance(X, pandas.DataFrame):
        return True
    return hasattr(X, "__arrow_c_stream__") and len(getattr(X, "shape", ())) == 2


def _fit_encoder(
    parameters: Mapping[str, Any], sets: Callable[[], tuple[Any, Any]], *tables: Any
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
    return encoder.fit_sets(*sets(), set_priors=parameters["set_priors"], seed=seed, stacklevel=STACKLEVEL)


def _split(X: Any, sets: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of each set as two frames."""
    from uulearn.tabular.frames import to_frame

    frame = to_frame(X, "X")
    membership = inputs.read_sets(sets, len(frame))
    inputs.check_both_sets(membership)
    return frame[(membership == 0).numpy()], frame[(membership == 1).numpy()]
