"""`ariane sql`."""
