"""Figures of records and files."""
