"""Counters and the statistics made of them."""
