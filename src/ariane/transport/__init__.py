"""Sockets: frames in and out over TCP and TLS, and nothing about what a request means."""
