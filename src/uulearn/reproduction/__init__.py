"""Reproduction of the tables and figures of Lu, Zhang, Niu and Sugiyama (AISTATS 2020).

`experiments` has the configuration of every run, `runner` trains the runs missing from the `store`, and `pages`
writes the tables (`tables`, `render`), the `figures` (these need matplotlib, the extra ``plot``), and the pages on the
choice of λ (`selection`), the paper's `conclusions` and other readings of the paper (`variants`). `reference` has the
numbers printed in the paper. ``uulearn reproduce`` combines them.
"""
