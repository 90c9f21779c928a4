"""Reproduction of the tables and figures of Lu, Zhang, Niu and Sugiyama (AISTATS 2020).

================  ====================================================================================
`experiments`     the configuration of every run of every table and figure
`runner`          trains the runs that are missing in a store: dense models batched, others one by one
`selection`       the choice of λ without labels, and how much it gains
`pages`           writes the files of each table and figure
`store`           finished runs on disk
`statistics`      mean and spread, the paired t-test behind the bold numbers, turning points
`reference`       the numbers printed in the paper
`tables`          runs grouped into cells, next to the paper's numbers
`render`          a table as Markdown, LaTeX or HTML
`figures`         the paper's figures (needs matplotlib, the extra ``plot``)
================  ====================================================================================

``uulearn reproduce`` combines them. This module imports nothing, because only the figures need matplotlib.
"""
