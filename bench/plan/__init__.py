"""Decide what to run, and touch nothing."""
