"""Consume queues: entries, files, one queue, all queues."""
