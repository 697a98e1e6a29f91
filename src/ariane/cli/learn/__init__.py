"""`ariane learn`."""
