"""Consumers: push, pull and lite pull, and their common components."""
