"""Consumers: push, pull and lite pull, and what they share."""
