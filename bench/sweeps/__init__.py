"""Grids of runs, and what was asked for."""
