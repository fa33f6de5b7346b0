"""Evaluation data: reading, checking, fetching; and the small suites that come with the package."""
