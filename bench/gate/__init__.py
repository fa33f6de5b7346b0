"""New records against a reference, from records alone."""
