"""Tables as features: the columns of two files, their encoding as numbers, and checks for leakage.

`matrices` turns two files, or two folders of `images`, into two matrices: `survey` decides the columns over all rows,
`schema` converts rows by them (`cells`), `encoder` makes a matrix of float32, and `leakage` finds columns that
distinguish the sets by more than their class priors.
"""
