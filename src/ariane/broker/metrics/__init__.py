"""Metrics: collected from the broker, exposed to Prometheus over HTTP."""
