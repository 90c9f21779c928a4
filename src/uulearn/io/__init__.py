"""Files of rows: read and write CSV, TSV, Parquet, Feather, JSON lines and NumPy arrays."""
