"""Expand columns of lists of numbers, in which files store embeddings, into one column per position.

The column ``embedding`` becomes the columns ``embedding[0]``, ``embedding[1]`` and so on. In all rows, the list must
have the same length and contain only finite numbers. Lists of fixed and of variable length are supported, and tensors
with one dimension.

Ordinary columns may have such names, too. Therefore, each frame of a reader contains the lengths of its lists
(`list_lengths`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uulearn.exceptions import TableError
from uulearn.io.formats import array_columns

ARRAY = ""
"""Name of an array without column names among the lists of a frame; no column has this name."""
LENGTHS = "uulearn.lists"  # entry of the attributes of a frame; pandas copies them to selected rows and columns


def element_type(kind: Any) -> Any:
    """Return the type of the numbers in a list type, or None if it is not a list of numbers."""
    kind = _storage(kind)
    is_a = pa.types
    if not (is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind)):
        return None
    inner = kind.value_type
    if is_a.is_float16(inner) or is_a.is_boolean(inner) or is_a.is_int8(inner) or is_a.is_uint8(inner):
        return pa.float32()
    if is_a.is_floating(inner):
        return inner
    return pa.float64() if is_a.is_integer(inner) or is_a.is_null(inner) else None


def measure(
    batches: Iterator[Any], kinds: Mapping[int, Any], names: Sequence[str], place: str
) -> tuple[Iterator[Any], dict[int, int]]:
    """Return the batches, and the length of the lists in each column of lists.

    ``kinds`` maps the positions of these columns to their types. The length of lists of variable length is that of the
    first list; `expand` checks the others.
    """
    found = {at: _storage(kind).list_size for at, kind in kinds.items() if _has_fixed_size(kind)}
    read = []
    if len(found) < len(kinds):
        for batch in batches:
            read.append(batch)
            if batch.num_rows:
                break
    for at in kinds.keys() - found.keys():
        if not read or not read[-1].num_rows:
            raise TableError(
                f"{place} has no rows, so the length of the lists in column {names[at]!r} is unknown; pass a file with "
                "at least one row."
            )
        first = read[-1].column(at)[0]
        if not first.is_valid:
            raise _no_list(names[at], place, 0)
        found[at] = len(first)
    for at, length in found.items():
        if not length:
            raise TableError(f"column {names[at]!r} of {place} contains empty lists; remove the column from the file.")

    def unread() -> Iterator[Any]:
        while read:
            yield read.pop(0)  # `itertools.chain` would keep the batch until the end
        yield from batches

    return unread(), found


def expand(column: Any, length: int, name: str, place: str, first_row: int) -> list[Any]:
    """Return one array of numbers per position of the lists.

    >>> lists = pa.array([[1.0, 2.0], [3.0, 4.0]])
    >>> [part.to_pylist() for part in expand(lists, 2, "embedding", "a.parquet", 0)]
    [[1.0, 3.0], [2.0, 4.0]]
    >>> expand(pa.array([[1.0, 2.0], [3.0]]), 2, "embedding", "a.parquet", 0)
    Traceback (most recent call last):
    uulearn.exceptions.TableError: column 'embedding' of a.parquet has 1 value in row 2, but 2 in row 1; all lists of \
an embedding need the same length, so encode the row again, or remove the column from the file.
    """
    lists = _lists(column)
    if lists.null_count:
        raise _no_list(name, place, first_row + _first(pc.is_null(lists)))
    if (wrong := pc.not_equal(pc.list_value_length(lists), length)) and pc.any(wrong).as_py():
        row = _first(wrong)
        own = pc.list_value_length(lists)[row].as_py()
        raise TableError(
            f"column {name!r} of {place} has {own:,} value{'s' * (own != 1)} in row {first_row + row + 1:,}, but "
            f"{length:,} in row 1; all lists of an embedding need the same length, so encode the row again, or remove "
            "the column from the file."
        )
    numbers = pc.list_flatten(lists).cast(element_type(column.type)).to_numpy(zero_copy_only=False)
    matrix: NDArray[Any] = numbers.reshape(-1, length)
    if not (finite := np.isfinite(matrix)).all():
        row, position = np.argwhere(~finite)[0].tolist()
        raise TableError(
            f"column {name!r} of {place} has {matrix[row, position]} at position {position} of row "
            f"{first_row + row + 1:,}, which is not a finite number; encode the row again, or remove it."
        )
    return [pa.array(np.ascontiguousarray(own)) for own in matrix.T]


def position_names(name: str, length: int) -> list[str]:
    """Return the names of the columns that replace a column of lists, or of the columns of an array.

    >>> position_names("embedding", 2), position_names(ARRAY, 2)
    (['embedding[0]', 'embedding[1]'], ['0', '1'])
    """
    return [f"{name}[{position}]" for position in range(length)] if name != ARRAY else array_columns(length)


def expand_names(names: Iterable[str], lengths: Mapping[str, int]) -> list[str]:
    """Return the names, with the columns of a list instead of its name.

    >>> expand_names(["id", "embedding"], {"embedding": 2})
    ['id', 'embedding[0]', 'embedding[1]']
    """
    return [own for name in names for own in (position_names(name, lengths[name]) if name in lengths else [name])]


def with_lengths(frame: pd.DataFrame, lengths: Mapping[str, int]) -> pd.DataFrame:
    """Store the length of each list that was replaced by columns of a frame; return the frame."""
    frame.attrs |= {LENGTHS: dict(lengths)} if lengths else {}
    return frame


def list_lengths(frame: pd.DataFrame) -> dict[str, int]:
    """Return the lengths stored by `with_lengths`, without lists with removed or renamed columns."""
    names = {*frame.columns}
    stored: dict[str, int] = frame.attrs.get(LENGTHS, {})
    return {name: length for name, length in stored.items() if names.issuperset(position_names(name, length))}


def _storage(kind: Any) -> Any:
    """Return the type that an extension type, such as a tensor of fixed shape, is stored as."""
    if isinstance(kind, pa.FixedShapeTensorType) and len(kind.shape) == 1:
        return kind.storage_type
    return kind


def _has_fixed_size(kind: Any) -> bool:
    return bool(pa.types.is_fixed_size_list(_storage(kind)))


def _lists(column: Any) -> Any:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _first(mask: Any) -> int:
    return int(pc.index(mask, True).as_py())


def _no_list(name: str, place: str, row: int) -> TableError:
    return TableError(f"column {name!r} of {place} has no list in row {row + 1:,}; remove the row, or encode it again.")
