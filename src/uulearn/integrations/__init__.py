"""Trainers of other libraries that minimize the corrected risk; each module needs its extra and is imported by name."""
