"""What a run left behind, and what determined it."""
