"""What a score doesn't say."""
