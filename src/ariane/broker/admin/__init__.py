"""Handlers of administration requests, one module per area."""
