"""Workflows on files: fit two files, save the model with its encoder, and score new rows."""
