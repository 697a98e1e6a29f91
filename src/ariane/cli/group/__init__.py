"""`ariane group`."""
