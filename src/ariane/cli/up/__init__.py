"""`ariane up`."""
