"""Probes at every dev evaluation of a training: measured, kept in a file, drawn and tabulated."""
