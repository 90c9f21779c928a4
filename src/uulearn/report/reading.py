"""Plain data from a file, read with care: what is absent or not a number is None, what is of a wrong type is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

LARGEST = 1e100
"""Numbers beyond it are as good as infinite: none that a page shows comes near."""


def as_number(value: Any, where: str) -> float | None:
    """A finite number; None where it is missing, infinite or not a number (JSON has no NaN, Python's has)."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(_refusal(where, "a number", value))
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if abs(number) < LARGEST else None


def as_text(value: Any, where: str) -> str | None:
    """A text, None where it is missing."""
    if value is None or isinstance(value, str):
        return value
    raise ValueError(_refusal(where, "a text", value))


def as_list(value: Any, where: str) -> list[Any]:
    """A list, empty where it is missing."""
    if value is None:
        return []
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ValueError(_refusal(where, "a list", value))
    return list(value)


def _refusal(where: str, wanted: str, value: Any) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "…"
    return f"{where} must be {wanted}, got {shown}; train again with uulearn fit, which writes it."


class Reader:
    """A mapping from names to plain data, and where it stands, for messages.

    Examples
    --------
    >>> facts = Reader({"seconds": 12.3, "split": {"evaluate": [100, 120]}}, "facts")
    >>> facts.number("seconds"), facts.number("hours"), facts.within("split").pair("evaluate")
    (12.3, None, (100.0, 120.0))
    >>> facts.text("seconds")
    Traceback (most recent call last):
        ...
    ValueError: facts['seconds'] must be a text, got 12.3; train again with uulearn fit, which writes it.
    """

    def __init__(self, data: Any, where: str) -> None:
        if data is not None and not isinstance(data, Mapping):
            raise ValueError(_refusal(where, "a mapping from names to values", data))
        self.data: Mapping[Any, Any] = data or {}
        self.where = where

    def __bool__(self) -> bool:
        return bool(self.data)

    def number(self, name: object) -> float | None:
        """A finite number or None."""
        return as_number(self.data.get(name), self._at(name))

    def count(self, name: str) -> int | None:
        """A whole number or None."""
        value = self.number(name)
        return None if value is None else round(value)

    def text(self, name: str) -> str | None:
        """A text or None."""
        return as_text(self.data.get(name), self._at(name))

    def truth(self, name: str) -> bool | None:
        """True, False or None."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, bool):
            raise ValueError(_refusal(self._at(name), "true or false", value))
        return value

    def numbers(self, name: object) -> list[float | None]:
        """A list of numbers, empty where it is missing."""
        return [as_number(value, self._at(name)) for value in as_list(self.data.get(name), self._at(name))]

    def texts(self, name: str) -> list[str]:
        """A list of texts, empty where it is missing."""
        found = [as_text(value, self._at(name)) for value in as_list(self.data.get(name), self._at(name))]
        return [text for text in found if text is not None]

    def pair(self, name: object) -> tuple[float, float] | None:
        """Two numbers, such as one for each set; None where either is missing."""
        found = self.numbers(name)
        if found and len(found) != 2:
            raise ValueError(_refusal(self._at(name), "two numbers", self.data[name]))
        return None if not found or found[0] is None or found[1] is None else (found[0], found[1])

    def lists(self, name: str) -> list[list[float | None]]:
        """A list of lists of numbers, empty where it is missing."""
        inner = dict(enumerate(as_list(self.data.get(name), self._at(name))))
        return [Reader(inner, self._at(name)).numbers(place) for place in inner]

    def within(self, name: str) -> Reader:
        """A mapping inside this one, empty where it is missing."""
        return Reader(self.data.get(name), self._at(name))

    def each(self, name: str) -> list[Reader]:
        """A list of mappings, empty where it is missing."""
        values = as_list(self.data.get(name), self._at(name))
        return [Reader(value, f"{self._at(name)}[{place}]") for place, value in enumerate(values)]

    def _at(self, name: object) -> str:
        return f"{self.where}[{name!r}]"
