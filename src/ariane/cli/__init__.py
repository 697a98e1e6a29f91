"""The `ariane` command: arguments in, calls to the rooms below, lines and exit statuss out."""
