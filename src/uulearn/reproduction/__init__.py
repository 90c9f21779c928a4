"""Reproduction of the tables and figures of Lu, Zhang, Niu and Sugiyama (AISTATS 2020).

`experiments` defines the configuration of every run, `runner` trains the runs that are missing from the `store`, and
`pages` writes the tables (`tables`, `render`), the `figures` (which need matplotlib, the extra ``plot``), and the pages
on the choice of λ (`selection`), the paper's `conclusions` and other interpretations of the paper (`variants`).
`reference` contains the numbers of the paper. ``uulearn reproduce`` combines these modules.
"""
