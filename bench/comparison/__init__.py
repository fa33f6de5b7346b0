"""Two sides, and what seeds and items say of them, in words."""
