"""Administration: one file per area, each verb over one typed call. Begin at admin.py."""

from ariane.client.admin.admin import Admin

__all__ = ["Admin"]
