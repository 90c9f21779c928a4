"""Convert tables to features: determine the columns of two files, encode them as numbers, and check for leakage.

`matrices` turns two files, or two folders of `images`, into two matrices: `survey` determines the columns from all
rows, `schema` converts rows to these columns (`cells` parses them), `encoder` returns a float32 matrix, and `leakage`
finds columns that distinguish the sets by more than their class priors.
"""
