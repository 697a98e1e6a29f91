"""The nameserver: brokers register their topics at it, clients look up topic routes."""
