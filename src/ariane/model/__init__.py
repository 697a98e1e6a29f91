"""The domain model: immutable values that every package shares. No I/O, no encoding."""
