"""Convert tables to features: determine the kinds of the columns, encode them as numbers, and check for leakage.

`TableEncoder` converts pandas, polars and Arrow tables to a float32 matrix. `survey` determines the columns from all
rows, `cells` parses cells, `schema` converts rows to typed columns, and `encoder` encodes typed rows. `leakage` finds
columns that distinguish the sets better than their class priors allow. `matrices` converts two files, or two folders of
images (`images`), to two matrices.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uulearn.tabular.encoder import TableEncoder

__all__ = ["TableEncoder"]


def __getattr__(name: str) -> Any:
    if name == "TableEncoder":  # imported on first use, because it imports pandas
        from uulearn.tabular.encoder import TableEncoder

        return TableEncoder
    raise AttributeError(f"module 'uulearn.tabular' has no attribute {name!r}")
