"""Reproducing the tables and figures of Lu, Zhang, Niu and Sugiyama (AISTATS 2020).

================  ====================================================================================
`experiments`     the experiments as data: the configuration of every run of every table and figure
`runner`          does the runs that a store lacks: dense models in stacks, the others one by one
`selection`       the choice of λ without labels, and what it is worth
`pages`           which files each table and figure is written to
`store`           finished training runs on disk: many writers, one file each, packed when wanted
`statistics`      mean and spread, the paired t-test behind the bold numbers, where a curve turns
`reference`       the numbers that the paper printed
`tables`          runs gathered into cells, beside the paper's numbers
`render`          a table as Markdown, LaTeX or HTML
`figures`         the paper's figures (needs matplotlib, the extra ``plot``)
================  ====================================================================================

``uulearn reproduce`` puts them together. Nothing is imported here: drawing needs matplotlib, and reading a table should
not wait for it.
"""
