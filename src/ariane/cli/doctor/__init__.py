"""`ariane doctor`."""
