"""Ariane: a message broker in pure Python that speaks Apache RocketMQ's wire protocol."""

__version__ = "0.1.0"
