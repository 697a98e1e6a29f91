"""Reads the commit log of a store directory as Arrow batches: planning, splits and reading."""
