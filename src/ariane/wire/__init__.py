"""Encoding and decoding of RocketMQ's protocol: frames, headers, bodies, stored records. No I/O."""
