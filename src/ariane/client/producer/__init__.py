"""Producers: preparing, batching, sending and retrying messages."""
