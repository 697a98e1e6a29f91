"""Replication: a master streams the bytes of its commit log to its slaves, and counts what they acknowledge."""
