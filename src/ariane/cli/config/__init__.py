"""`ariane config`."""
