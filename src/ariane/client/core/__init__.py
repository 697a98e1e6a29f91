"""A client instance: connections, routes, heartbeats, identity."""
