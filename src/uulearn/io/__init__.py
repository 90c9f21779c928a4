"""Read and write files of rows: CSV, TSV, Parquet, Feather, JSON lines, Excel sheets and NumPy arrays.

`reading` opens any format in chunks, `writing` writes text and Arrow formats atomically, and `formats` and `sources`
find the format and the bytes of a file. pyarrow parses CSV: of DuckDB, polars, pandas and pyarrow it is the only one
that gives the cells of Python's ``csv`` module for all valid texts, and it needs the least CPU time
(``benchmarks/csv_engines.py``).
"""
