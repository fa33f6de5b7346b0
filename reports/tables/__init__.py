"""One view a file."""
