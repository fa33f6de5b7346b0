"""Seeded cases of damaged input for every surface of bench: ``python -m tests.fuzz``."""
