"""Validation of sends: may this broker, topic and queue be written? In Apache's order: time, broker, name, topic,
queue, body.

Permissions are for draining, as in Apache 4.9: without write permission the queues of a topic or a broker are hidden
from routes, and what a producer with an old route still sends is stored. Only a read-only broker refuses sends to
ordered topics. With `refuse_unpermitted_sends` all of these are refused; Java producers then try another broker.
"""

import random
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address

from ariane.broker.send.flow_control import FlowControl
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.clock import Clock
from ariane.errors import MessageRefused, RequestFailed
from ariane.model.address import Address
from ariane.model.ids import topic_name_problem
from ariane.model.message import HostPort
from ariane.model.system_topics import is_writable_by_clients
from ariane.model.topic import Permission, TopicConfig
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.host import encode_host
from ariane.wire.requests.send import Send

_WRITE = int(Permission.WRITE)
_UNKNOWN_HOST = bytes(8)


class SendChecks:
    """Caches the topics that have passed, so that a send costs one look-up."""

    def __init__(self, settings: BrokerSettings, topics: Topics, clock: Clock) -> None:
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._passed: dict[str, TopicConfig] = {}
        self.batch_bytes_max = settings.store.max_message_bytes
        """Of a batch as it is sent, as at Apache's broker. The store has the same limit for each message's body."""
        topics.on_change(self._forget)

    def admit(self) -> None:
        """RequestFailed when this broker accepts no sends at all."""
        settings = self._settings
        if settings.accept_sends_from_ms and self._clock.now_ms() < settings.accept_sends_from_ms:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"broker {settings.name} accepts sends from startAcceptSendRequestTimeStamp = "
                f"{settings.accept_sends_from_ms} on; it is {self._clock.now_ms()} now",
            )
        if settings.refuse_unpermitted_sends and not self.is_writable:
            raise self._read_only()

    def destination(self, request: Send, connection: Connection) -> TopicConfig:
        """The topic to write to, created if need be; RequestFailed when it may not be written."""
        self.admit()
        config = self._passed.get(request.topic) or self._pass(request, connection)
        if config.order and not self.is_writable:
            raise self._read_only()
        return config

    @property
    def is_writable(self) -> bool:
        """Whether this broker has write permission."""
        return bool(self._settings.permission & _WRITE)

    @property
    def accepts_half_messages(self) -> bool:
        return not self._settings.reject_transactions

    def check_batch(self, body: bytes) -> None:
        if len(body) > self.batch_bytes_max:
            raise MessageRefused(
                f"a batch of {len(body)} bytes, at most {self.batch_bytes_max} are taken: split it or raise "
                "maxMessageSize"
            )

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when topics change, so that what has passed must be checked again."""
        self._topics.on_change(lambda _: listener())

    def _pass(self, request: Send, connection: Connection) -> TopicConfig:
        if (fault := topic_name_problem(request.topic)) is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, fault)
        if not is_writable_by_clients(request.topic):
            raise _forbidden(f"topic {request.topic} is the broker's own: clients may not send to it")
        config = self._topics.for_send(
            request.topic, request.default_topic, request.default_topic_queue_nums, connection
        )
        if self._settings.refuse_unpermitted_sends and not config.perm & _WRITE:
            raise _forbidden(
                f"topic {request.topic} on broker {self._settings.name} may not be written (perm = {config.perm}): "
                "give it perm 6 (mqadmin updateTopicPerm)"
            )
        self._passed[request.topic] = config
        return config

    def _read_only(self) -> RequestFailed:
        settings = self._settings
        return _forbidden(f"broker {settings.name} may not be written (brokerPermission = {settings.permission})")

    def _forget(self, config: TopicConfig | None) -> None:
        self._passed.clear()


def queue_of(request: Send, config: TopicConfig) -> int:
    """The requested queue, which may be one that only readers still see; a random one when it is negative."""
    queue_id = request.queue_id
    if queue_id < 0:
        return random.randrange(config.write_queue_nums)  # noqa: S311 - spreads load, protects nothing
    if queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"queueId {queue_id} of topic {config.topic_name} is illegal: it has {config.write_queue_nums} write and "
            f"{config.read_queue_nums} read queues, counted from 0",
        )
    return queue_id


def check_body(body: bytes) -> None:
    """Apache's broker stores an empty body, its clients refuse to send one, and 4.x consumers fail on receiving it."""
    if not body:
        raise RequestFailed(
            ResponseCode.MESSAGE_ILLEGAL, "the body is empty: 4.x consumers fail on such a message, so send a byte"
        )


def accepts_sends(flow: FlowControl, checks: SendChecks) -> bool:
    """Whether the fast path may take sends now; the general path says why not, or which."""
    try:
        flow.admit()
        checks.admit()
    except RequestFailed:
        return False
    return checks.is_writable


@lru_cache(maxsize=4096)
def born_host(peer: str) -> bytes:
    """The address of a connection's peer as a record holds it."""
    try:
        address = Address.parse(peer)
        return encode_host(HostPort(ip_address(address.host.partition("%")[0]), address.port))
    except ValueError:  # not a network address: only a pipe in a test has none
        return _UNKNOWN_HOST


def _forbidden(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.NO_PERMISSION, remark)
