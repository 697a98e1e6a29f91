"""Writing rows to topics, with retries or exactly once."""
