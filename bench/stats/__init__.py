"""Statistics of seeds and items."""
