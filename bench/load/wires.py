"""The three protocols behind one face."""

import socket

from bench.load import nats, redis, rocketmq
from bench.load.plan import Kind, LoadPlan, Wire
from bench.load.responses import Answers
from bench.load.ring import Ring
from bench.load.rocketmq_answers import PullAnswers, SendAnswers


def ring_of(plan: LoadPlan) -> Ring:
    encoders = {Wire.ROCKETMQ: rocketmq.ring_of, Wire.NATS: nats.ring_of, Wire.REDIS: redis.ring_of}
    return encoders[plan.wire](plan)


def answers_of(plan: LoadPlan) -> Answers:
    """A reader for one connection."""
    if plan.kind is Kind.PULL:
        return _read_answers(plan)
    if plan.wire is Wire.ROCKETMQ:
        return SendAnswers()
    return nats.PublishAnswers() if plan.wire is Wire.NATS else redis.AddAnswers()


def _read_answers(plan: LoadPlan) -> Answers:
    if plan.wire is Wire.ROCKETMQ:
        return PullAnswers()
    if plan.wire is Wire.NATS:
        return nats.ReadAnswers(plan.messages_a_request)
    return redis.RangeAnswers(plan.messages_a_request, plan.body_bytes)


def connect(wire: Wire, address: str, connection: int = 0) -> socket.socket:
    """A connection that is ready for requests."""
    host, port = address.rsplit(":", 1)
    peer = socket.create_connection((host, int(port)), timeout=30)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if wire is Wire.NATS:
        nats.greet(peer, connection)
    return peer
