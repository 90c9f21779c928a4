"""HTML and SVG for the report and for notebooks."""
