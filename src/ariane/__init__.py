"""Ariane: a message broker in pure Python that speaks Apache RocketMQ's wire protocol."""

from importlib.metadata import version

__version__ = version("ariane")
