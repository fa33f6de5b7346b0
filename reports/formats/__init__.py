"""Formats; they take grids only."""
