"""Files of rows: read, surveyed, turned into numbers, written.

===============  =====================================================================================
`reading`        CSV, TSV, Parquet, Feather, JSON lines, NumPy arrays, compressed or not, chunk by chunk
`writing`        the same formats, streamed and atomic
`survey`         what the columns of two files are, and whether they go together
`schema`         the columns as a model knows them
`pipeline`       typed columns to a matrix of numbers, by scikit-learn
`leaking_columns`      columns that tell the sets apart by more than their shares of positives
===============  =====================================================================================

All of it needs ``pip install 'uulearn[files]'``, and nothing of it is imported by the rest of the library.
"""
