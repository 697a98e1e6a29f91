"""`ariane pipeline`."""
