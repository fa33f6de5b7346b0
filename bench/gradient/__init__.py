"""The gradient paradigm's figures."""
