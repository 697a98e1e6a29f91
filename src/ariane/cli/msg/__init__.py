"""`ariane msg`."""
