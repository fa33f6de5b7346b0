"""Results that were made elsewhere: read into records, without a claim that they were checked."""
