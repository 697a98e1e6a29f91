"""Delayed delivery: delay levels and the timer wheel."""
