"""`ariane store`."""
