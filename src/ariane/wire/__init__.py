"""Bytes to values and back: frames, headers, bodies, stored records. No I/O."""
