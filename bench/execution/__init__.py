"""Do what was planned."""
