"""`ariane tail`."""
