"""The admin API: one module per area, one method per admin request. Start at admin.py."""

from ariane.client.admin.admin import Admin

__all__ = ["Admin"]
