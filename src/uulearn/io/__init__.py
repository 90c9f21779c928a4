"""Read and write files of rows: CSV, TSV, Parquet, Feather, JSON lines, Excel sheets and NumPy arrays.

=============  ==========================================================================================
`formats`      file formats by suffix, folders of Parquet files, column names
`sources`      bytes of a file or of standard input, decompressed and in UTF-8
`reading`      `open_table` and `read_table`: any format, in chunks
`csv_files`    CSV and TSV, parsed by pyarrow
`json_lines`   JSON lines, parsed by the standard library
`arrow`        Parquet (one file or a folder) and Feather
`arrays`       ``.npy`` and ``.npz``
`excel`        one sheet of an ``.xlsx`` file, parsed by calamine
`writing`      `TableWriter`: any text or Arrow format, atomic and compressed
=============  ==========================================================================================

Why pyarrow parses the CSV files (``benchmarks/csv_engines.py``, record in ``benchmarks/results/csv_engines.json``): on
random texts it gives the cells of Python's ``csv`` module for all valid texts, needs the least CPU time (3.7 s for a
file of 0.94 GB), and streams from any file object (compressed, UTF-16) in bounded memory. DuckDB in its strict mode
rejects a third of the valid texts, mostly with mixed line ends, drops an empty last field without an error, and needs
three times the CPU time; its tolerant mode loses characters. polars and pandas accept many malformed texts, and pandas
needs ten times the CPU time. pyarrow does not detect the separator, names records instead of lines in errors, and
accepts an open quote at the end of a file: for these, the ``csv`` module reads the first records and, after an error,
the file again.
"""
