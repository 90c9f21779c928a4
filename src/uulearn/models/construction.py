"""Errors of the constructors of networks, which depend on the values of ``model_params``."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

CONSTRUCTION_ERRORS = (TypeError, ValueError, AssertionError, ArithmeticError, RuntimeError)
"""What constructors of torch and torchvision raise for values that they do not support."""


@contextlib.contextmanager
def explain_errors(
    name: str, params: Mapping[str, Any], kinds: tuple[type[Exception], ...] = CONSTRUCTION_ERRORS
) -> Iterator[None]:
    """Replace an error of a constructor by a ValueError that names the model and the parameters of the user.

    >>> with explain_errors("mlp", {"hidden": 3}):
    ...     raise TypeError("'int' object is not iterable")
    Traceback (most recent call last):
        ...
    ValueError: model mlp cannot be built with {'hidden': 3}: 'int' object is not iterable; correct model_params.
    """
    try:
        yield
    except kinds as error:
        reason = str(error).rstrip(".!")
        raise ValueError(f"model {name} cannot be built with {params}: {reason}; correct model_params.") from error
