"""`ariane send`."""
