"""`ariane top`."""
