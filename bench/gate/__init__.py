"""Verdicts on new records against a reference."""
