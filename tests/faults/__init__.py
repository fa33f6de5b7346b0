"""Faults on purpose: each module is one, a script that anyone can run; see docs/faults.md."""
