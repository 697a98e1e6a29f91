"""Typed calls: a request struct in, a response struct out, at both ends of a connection."""
