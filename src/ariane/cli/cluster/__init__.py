"""`ariane cluster` and `ariane broker list|show|config|clean`."""
