"""Faults on purpose: each module here is one, a script that anyone can run, and the tests' own functions.

``python -m tests.faults.kill --kills 200``; see docs/faults.md.
"""
