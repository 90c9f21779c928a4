"""From typed columns to a matrix of float32, by a scikit-learn pipeline that is fitted on both sets together.

========  =========================================================================================================
number    Normal scores: the value that its rank would have among as many normal draws, standardised, cut at ±3; the
          median where it is missing
boolean   1 or 0; the mean where it is missing
category  A column for each frequent value, one for all rare values, one for missing ones
date      The day by normal scores, the time of the year, the day of the week and, if cells have one, the time of
          the day each as sine and cosine
text      Sixteen numbers: counts of letter groups (short text) or words (long text), hashed, weighted by rarity and
          reduced by a truncated singular value decomposition
========  =========================================================================================================

A number, boolean, date or text that was ever missing has one more column that says so.

Normal scores were chosen by measurement: classifiers trained on six tables (two sets of up to 1,000 rows at priors 0.8
and 0.2, three seeds) had a balanced accuracy of 89.4% with them on the columns as they are, of 89.4% on exponentials of
the columns, and of 89.1% with one cell in 500 multiplied by 100,000; with standardised columns these were 89.2%, 71.1%
and 60.6%, with robust scaling and a smooth cut (Holzmüller et al., 2024) 88.8%, 83.7% and 88.8%. A monotone change of
a column does not change its scores, and an outlier is but the largest of the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from uulearn.tabular.blocks import Block, Booleans, Categories, Dates, Numbers, Text
from uulearn.tabular.schema import Column, Schema
from uulearn.tabular.storing import load_pipeline, save_pipeline

__all__ = ["build_pipeline", "feature_groups", "load_pipeline", "save_pipeline"]


def build_pipeline(schema: Schema) -> Pipeline:
    """The pipeline for a schema, to be fitted on rows of both sets as `uulearn.tabular.schema.typed` gives them.

    Which columns of the matrix there are follows from the schema alone, whichever rows it is fitted on.

    Examples
    --------
    >>> import pandas as pd
    >>> schema = Schema((Column("age", "number", missing=True), Column("smokes", "boolean")))
    >>> rows = pd.DataFrame({"age": [20.0, 30.0, 40.0, float("nan")], "smokes": [1.0, 0.0, 0.0, 1.0]})
    >>> build_pipeline(schema).fit_transform(rows).round(2)
    array([[-1.22,  0.  ,  1.  ],
           [ 0.  ,  0.  ,  0.  ],
           [ 1.22,  0.  ,  0.  ],
           [ 0.  ,  1.  ,  1.  ]], dtype=float32)
    """
    blocks: list[tuple[str, Block, list[str]]] = []
    for kind in ("number", "boolean", "category", "date"):
        columns = [column for column in schema.columns if column.kind == kind]
        if columns:
            blocks.append((kind, _block(kind, columns), [column.name for column in columns]))
    texts = [column for column in schema.columns if column.kind == "text"]
    blocks += [(f"text {n}", Text(column.long, column.missing), [column.name]) for n, column in enumerate(texts)]
    columns_to_matrix = ColumnTransformer(blocks, sparse_threshold=0).set_output(transform="default")
    return Pipeline([("columns", columns_to_matrix)])


def _block(kind: str, columns: Sequence[Column]) -> Block:
    missing = [column.missing for column in columns]
    if kind == "number":
        return Numbers(missing)
    if kind == "boolean":
        return Booleans(missing)
    if kind == "date":
        return Dates([column.clock for column in columns], missing)
    return Categories([list(column.values) for column in columns], [column.other for column in columns], missing)


def feature_groups(pipeline: Pipeline, schema: Schema) -> dict[str, list[int]]:
    """For each column of the table, the columns of the matrix that it became.

    Examples
    --------
    >>> import pandas as pd
    >>> schema = Schema((Column("smokes", "boolean", missing=True), Column("age", "number")))
    >>> rows = pd.DataFrame({"smokes": [1.0, float("nan")], "age": [20.0, 30.0]})
    >>> feature_groups(build_pipeline(schema).fit(rows), schema)
    {'smokes': [1, 2], 'age': [0]}
    """
    groups: dict[str, list[int]] = {name: [] for name in schema.names}
    fitted = pipeline.named_steps["columns"]
    for name, block, columns in fitted.transformers_:
        if name != "remainder":
            start = fitted.output_indices_[name].start
            for feature, origin in enumerate(block.origins()):
                groups[columns[origin]].append(start + feature)
    return groups
