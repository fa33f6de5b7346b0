"""Grids to text, markdown, CSV, JSON, LaTeX and HTML; figures."""
