"""Convert tables to features: determine the columns of two files, encode them as numbers, and check for leakage.

`matrices` converts two files, or two folders of images (`images`), to two matrices. `survey` determines the columns
from all rows. `cells` parses cells, and `schema` converts rows to typed columns. `encoder` converts typed rows to a
float32 matrix. `leakage` finds columns that distinguish the sets better than their class priors allow.
"""
