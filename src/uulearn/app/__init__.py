"""Workflows over files: fit two files, keep the model with its encoder, and score new rows."""
