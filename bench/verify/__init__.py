"""What ``bench verify`` asks of every record, and what it found."""
