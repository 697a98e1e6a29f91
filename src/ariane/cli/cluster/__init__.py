"""`ariane cluster` and `ariane admin broker`."""
