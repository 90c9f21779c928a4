"""Workflows on files: fit a classifier to two files, save it with its encoder, and score new rows."""
