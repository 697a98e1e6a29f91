"""Shared by the commands: cluster connection, admin calls, option types, output."""
