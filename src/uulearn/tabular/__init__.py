"""Convert tables to features: determine the columns of two files, encode them as numbers, and check for leakage.

`matrices` converts two files, or two folders of images (`images`), to two matrices. `survey` determines the columns
from all rows. `schema` converts rows to these columns and parses them with `cells`. `encoder` converts them to a
float32 matrix. `leakage` finds columns that distinguish the sets better than their class priors allow.
"""
