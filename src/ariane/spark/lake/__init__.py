"""Sinks for Delta and Iceberg tables."""
