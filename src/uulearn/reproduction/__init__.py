"""Reproduce the tables and figures of Lu, Zhang, Niu and Sugiyama (AISTATS 2020).

`experiments` defines the configuration of every run. `runner` trains the runs that are missing from the `store`.
`pages` writes the tables (`tables`, `render`) and the `figures`, which require matplotlib. It also writes pages on the
choice of λ (`selection`), the paper's `conclusions`, and other interpretations of the paper (`variants`). `reference`
contains the numbers printed in the paper. The command ``uulearn reproduce`` combines these modules.
"""
