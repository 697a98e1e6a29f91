"""Typed calls: a request struct in, an answer struct out, at both ends of a connection."""
