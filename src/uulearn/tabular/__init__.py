"""Tables as features: the columns of two files, their encoding as numbers, and checks for leakage.

==========  ================================================================================
`survey`    decides the kind of each column over all rows of two files (`kinds`, `summary`)
`schema`    the columns as the model knows them; converts rows by them (`cells`, `dates`)
`encoder`   `TableEncoder`: typed columns to a matrix of float32
`matrices`  two files, or two folders of images (`images`), to two matrices
`leakage`   columns that distinguish the sets by more than their class priors (`coding`)
==========  ================================================================================
"""
