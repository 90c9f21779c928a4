"""Read and write tables: CSV, TSV, Parquet, Feather, JSON lines, Excel sheets and NumPy arrays.

`reading` opens any format in chunks, `writing` writes text and Arrow formats atomically, `formats` detects the format
of a file, and `sources` opens its content. CSV is parsed by pyarrow: among DuckDB, polars, pandas and pyarrow, it is
the only one that returns the same cells as Python's ``csv`` module for all valid files, and it needs the least CPU time
(``benchmarks/csv_engines.py``).
"""
