"""Frozen values shared by every room: no I/O, no bytes."""
