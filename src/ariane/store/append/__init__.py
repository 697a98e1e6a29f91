"""Appending messages: drafts in, records out."""
