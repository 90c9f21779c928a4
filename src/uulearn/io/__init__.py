"""Read and write tables: CSV, TSV, Parquet, Feather, JSON lines, Excel sheets and NumPy arrays.

`reading` reads tables in chunks, `writing` writes them atomically, `formats` detects file formats, and `sources` opens
the content of files. CSV files are parsed by pyarrow. Compared with DuckDB, polars and pandas, only pyarrow returns the
same cells as Python's ``csv`` module for all valid files, and it needs the least CPU time
(``benchmarks/csv_engines.py``).
"""
