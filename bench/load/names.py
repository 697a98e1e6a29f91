"""Names shared by the load generator and the setup of the systems."""

PRODUCER_GROUP = "bench-producers"
CONSUMER_GROUP = "bench-consumers"
BROKER = "bench-a"
STREAM = "bench"
"""NATS's stream: the one log that all subjects go to, as all topics go to RocketMQ's commit log."""


def topic_name(number: int) -> str:
    return f"bench-{number:04d}"


def subject(topic: int, queue: int) -> str:
    """NATS: topics and queues are subjects of the stream."""
    return f"bench.{topic:04d}.{queue}"


def stream_key(topic: int, queue: int) -> str:
    """Redis: each queue is a stream of its own."""
    return f"bench-{topic:04d}:{queue}"
