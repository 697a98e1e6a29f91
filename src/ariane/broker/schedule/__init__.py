"""Delayed delivery: delay levels and the timer wheel.

Which messages wait, and which are refused because they are due too far ahead, is decided before they are stored:
`deferred` in broker/writer.py.
"""
