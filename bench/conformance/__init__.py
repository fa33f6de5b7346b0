"""The checks that every method passes."""
