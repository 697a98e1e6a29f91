"""One interface to the three protocols."""

import socket

from bench.load import nats, redis, rocketmq
from bench.load.plan import Kind, LoadPlan, Serialization, Wire
from bench.load.responses import ResponseReader
from bench.load.ring import Ring
from bench.load.rocketmq_responses import BinarySendResponses, PullResponses, SendResponses


def ring_of(plan: LoadPlan) -> Ring:
    encoders = {Wire.ROCKETMQ: rocketmq.ring_of, Wire.NATS: nats.ring_of, Wire.REDIS: redis.ring_of}
    return encoders[plan.wire](plan)


def response_reader(plan: LoadPlan) -> ResponseReader:
    """A response reader for one connection."""
    if plan.kind is Kind.PULL:
        return _pull_response_reader(plan)
    if plan.wire is Wire.ROCKETMQ:
        return SendResponses() if plan.serialization is Serialization.JSON else BinarySendResponses()
    return nats.PublishResponses() if plan.wire is Wire.NATS else redis.AddResponses()


def _pull_response_reader(plan: LoadPlan) -> ResponseReader:
    if plan.wire is Wire.ROCKETMQ:
        return PullResponses()
    if plan.wire is Wire.NATS:
        return nats.ReadResponses(plan.messages_a_request)
    return redis.RangeResponses(plan.messages_a_request, plan.body_bytes)


def connect(wire: Wire, address: str, connection: int = 0) -> socket.socket:
    """A connection that is ready for requests."""
    host, port = address.rsplit(":", 1)
    peer = socket.create_connection((host, int(port)), timeout=30)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if wire is Wire.NATS:
        nats.greet(peer, connection)
    return peer
