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

Why pyarrow parses the CSV files: ``benchmarks/csv_engines.py`` compares it with DuckDB, polars and pandas. pyarrow
agrees with Python's ``csv`` module on every file of the fuzz corpus, needs the least CPU time, and streams from any
file object (compressed, standard input) in bounded memory. DuckDB's dialect detection does not make up for this: its
strict mode rejects files with mixed line ends and drops an empty last field without an error, its tolerant mode loses
characters and fields, and it takes more than twice the CPU time. polars loads whole files when it streams from anything
but a path, and reports no line number. What pyarrow lacks (the separator, the line number of an error, an open quote)
comes from the ``csv`` module, which reads the first records and, after an error, the file again.
"""
