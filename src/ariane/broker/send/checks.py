"""May this be sent, and where to? In Apache's order: time, broker, name, topic, queue, body.

Two checks are stricter than Apache's. A topic without write permission refuses sends: Apache only hides its queues from
routes, so a producer with an old route, or with a queue of its own choice, goes on writing. And a broker that is read
only refuses all sends, where Apache refuses those to ordered topics. Java producers then try another broker.
"""

import random
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address

from ariane.broker.send.flow_control import FlowControl
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.broker.writer import CHECKSUM_PROPERTY
from ariane.clock import Clock
from ariane.errors import MessageRefused, RequestFailed
from ariane.model.address import Address
from ariane.model.ids import topic_name_problem
from ariane.model.message import HostPort
from ariane.model.system_topics import is_writable_by_clients
from ariane.model.topic import Permission, TopicConfig
from ariane.wire.codes import ResponseCode
from ariane.wire.host import encode_host
from ariane.wire.requests.send import Send

_WRITE = int(Permission.WRITE)
_UNKNOWN_HOST = bytes(8)


class SendChecks:
    """Remembers the topics that have passed, so that a send costs one look-up."""

    def __init__(self, settings: BrokerSettings, topics: Topics, clock: Clock) -> None:
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._passed: dict[str, TopicConfig] = {}
        topics.on_change(self._forget)

    def admit(self) -> None:
        """RequestFailed when this broker takes no sends at all."""
        settings = self._settings
        if settings.accept_sends_from_ms and self._clock.now_ms() < settings.accept_sends_from_ms:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"broker {settings.name} takes sends from startAcceptSendRequestTimeStamp = "
                f"{settings.accept_sends_from_ms} on; it is {self._clock.now_ms()} now",
            )
        if not settings.permission & _WRITE:
            raise _forbidden(f"broker {settings.name} may not be written (brokerPermission = {settings.permission})")

    def destination(self, request: Send) -> TopicConfig:
        """The topic to write to, made if need be; RequestFailed when it may not be written."""
        self.admit()
        return self._passed.get(request.topic) or self._pass(request)

    def passed(self, topic: str) -> TopicConfig | None:
        """The topic, if it has passed its checks and nothing has changed since."""
        return self._passed.get(topic)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when what has passed must be looked at anew."""
        self._topics.on_change(lambda _: listener())

    def _pass(self, request: Send) -> TopicConfig:
        if (fault := topic_name_problem(request.topic)) is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, fault)
        if not is_writable_by_clients(request.topic):
            raise _forbidden(f"topic {request.topic} is the broker's own: clients may not send to it")
        config = self._topics.for_send(request.topic, request.default_topic, request.default_topic_queue_nums)
        if not config.perm & _WRITE:
            raise _forbidden(
                f"topic {request.topic} on broker {self._settings.name} may not be written (perm = {config.perm}): "
                "give it perm 6 (mqadmin updateTopicPerm)"
            )
        self._passed[request.topic] = config
        return config

    def _forget(self, config: TopicConfig | None) -> None:
        self._passed.clear()


def queue_of(request: Send, config: TopicConfig) -> int:
    """The queue asked for, which may be one that only readers still see; any when none is asked for."""
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
    """Whether sends are taken now, for the lanes; why they are not is told by the general way."""
    try:
        flow.admit()
        checks.admit()
    except RequestFailed:
        return False
    return True


@lru_cache(maxsize=4096)
def born_host(peer: str) -> bytes:
    """A connection's other end as a record holds it."""
    try:
        address = Address.parse(peer)
        return encode_host(HostPort(ip_address(address.host.partition("%")[0]), address.port))
    except ValueError:  # not a network address: only a test's pipe has none
        return _UNKNOWN_HOST


def _forbidden(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.NO_PERMISSION, remark)


# --- property_text ---
#
# A client's property text, read once and stored as it came.
#
# Nearly every text is regular, `name 0x01 value 0x02` over and over: it goes into the record without being written
# anew. An irregular one is mended when no reader would miss anything, and refused when one would:
#
#     an empty value                     left out, as every reader leaves it out
#     no 0x02 at the end                 added
#     a name twice                       the later one, as every reader takes it
#     a seal (__CRC32#)                  left out: only the store writes it
#     a piece without 0x01, or with two  refused: a name or a value held a separator, and Java's reader would drop the
#                                        property without a word


def read_property_text(text: str) -> tuple[dict[str, str], str]:
    """The properties, and the text that says the same and nothing else; MessageRefused when it cannot be told."""
    if text and text[-1] != "\x02":
        text += "\x02"  # clients of 4.9 leave the last one out
    properties: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if value and name:
            properties[name] = value
    # As many pairs as there are separators of either kind: so each piece is one pair, and no name comes twice.
    if text.count("\x01") == len(properties) == text.count("\x02") and CHECKSUM_PROPERTY not in properties:
        return properties, text
    return _mended(text)


def encoded(text: str) -> bytes:
    """The text as bytes; MessageRefused for half a surrogate pair, which a JSON header can carry and UTF-8 cannot."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        name = text[: error.start].rpartition("\x02")[2].partition("\x01")[0]
        raise MessageRefused(
            f"property {name[:80]!r} holds half a surrogate pair, which UTF-8 cannot express"
        ) from None


def decoded(data: bytes) -> str:
    """The text of a batch item's properties; MessageRefused when it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MessageRefused(f"the properties are not UTF-8 at byte {error.start}: encode them so") from None


def _mended(text: str) -> tuple[dict[str, str], str]:
    properties: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, mark, value = pair.partition("\x01")
        if pair and (not mark or not name or "\x01" in value):
            raise MessageRefused(
                f"the properties cannot be told apart at {pair[:40]!r}: 0x01 and 0x02 separate them, so no name and no "
                "value may hold either; encode it differently"
            )
        if value and name != CHECKSUM_PROPERTY:
            properties[name] = value
    return properties, "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
