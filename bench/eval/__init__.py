"""From an encoder to scores."""
