"""Consumer groups: configuration, members, offsets, lag, locks, resets, retries and dead letters."""
