"""Reads by queue offset, key and time."""
