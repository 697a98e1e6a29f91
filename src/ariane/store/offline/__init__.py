"""Tools that work on a store directory while no broker runs on it."""
