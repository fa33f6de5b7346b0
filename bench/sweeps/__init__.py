"""Sweeps: their grids, and the manifest of each that ran."""
