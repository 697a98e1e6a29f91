"""`ariane broker` and `ariane namesrv`."""
