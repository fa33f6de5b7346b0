"""Records of runs, and the facts that determine them."""
