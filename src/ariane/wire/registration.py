"""The body of REGISTER_BROKER in its three formats, and the JSON of routes and cluster maps.

Registration:

    version < 37        JSON    topics              {"dataVersion":..., "topicConfigTable":...}
    else                JSON    filter servers too  {"filterServerList":[...], "topicConfigSerializeWrapper":{topics}}
    compressed=true     zlib    one stream, lengths and counts are int32 big-endian:

        length | data version, JSON
        count  | length | "name read write perm filterType" | ...   a topic each; 5.x appends a sixth word
        length | filter servers, JSON
        count  | ...                                                only from 5.x, ignored: mappings of static topics

The compressed format has no fields for `topic_sys_flag` and `order`: they get their defaults when it is decoded.

Routes: one flag of queue data has two names. Clients before 4.9 read `topicSynFlag`, later ones `topicSysFlag`; both
are written, and either is read. In fastjson's dialect broker ids have no quotes, and there is no white space, because
Go clients up to 2.1.1 parse the text with string operations; clients from 4.9.4 on accept standard JSON.

    {"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c"}],
     "filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSynFlag":0,
     "topicSysFlag":0,"writeQueueNums":8}]}
"""

# ruff: noqa: RUF012 - msgspec copies a default list or dict for each instance
import struct
import zlib
from typing import NoReturn

import msgspec

from ariane.errors import BodyError, RecordError
from ariane.model.route import BrokerData, ClusterMap, QueueData, TopicRoute
from ariane.model.topic import DataVersion, TopicConfig, TopicFilterType
from ariane.wire.codes import Version
from ariane.wire.compression import decompress
from ariane.wire.hashes import crc32
from ariane.wire.json.body import JsonBody, decode_json, encode_json
from ariane.wire.requests.brokers import RegisterBroker
from ariane.wire.requests.topics import TopicTable
from ariane.wire.sys_flag import Compression, with_compression

INFLATED_MAX = 64 * 1024 * 1024  # a million topics; a decompression bomb of one frame (16 MiB) would become 16 GiB
TOPICS_MAX = 1_000_000
_ENTRY_MIN = 4 + len("T 1 1 6 MULTI_TAG")  # the smallest topic: a forged count is refused before topics are allocated
_INT32 = struct.Struct(">i")
_ZLIB = with_compression(0, Compression.ZLIB)


class RegistrationBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker registers besides its own address."""

    data_version: DataVersion = DataVersion()
    topics: dict[str, TopicConfig] = {}
    filter_servers: list[str] = []


class _JsonForm(JsonBody, frozen=True):
    topic_config_serialize_wrapper: TopicTable = TopicTable()
    filter_server_list: list[str] = []


def encode_registration(registration: RegistrationBody, compressed: bool) -> tuple[bytes, int]:
    """The body and its checksum, for `RegisterBroker.body` and `.body_crc32`."""
    body = _deflate(registration) if compressed else encode_json(_json_form(registration))
    return body, crc32(body)


def decode_registration(request: RegisterBroker, version: int) -> RegistrationBody | None:
    """The decoded body of `request`, None when it has no body. `version` is that of the command's header."""
    if not request.body:
        return None
    _check_crc(request)
    if version < Version.V3_0_11:
        return _from_table(decode_json(request.body, TopicTable), [])
    if request.compressed:
        return _Inflated(request.body).registration()
    form = decode_json(request.body, _JsonForm)
    return _from_table(form.topic_config_serialize_wrapper, form.filter_server_list)


def _check_crc(request: RegisterBroker) -> None:
    actual = crc32(request.body)
    if request.body_crc32 not in (0, actual):
        raise BodyError(
            f"the registration is damaged: its checksum is {actual}, but its header says {request.body_crc32}"
        )


def _from_table(table: TopicTable, filter_servers: list[str]) -> RegistrationBody:
    if len(table.topic_config_table) > TOPICS_MAX:
        _fail(f"{len(table.topic_config_table)} topics, at most {TOPICS_MAX} are accepted")
    return RegistrationBody(
        data_version=table.data_version, topics=table.topic_config_table, filter_servers=filter_servers
    )


def _json_form(registration: RegistrationBody) -> _JsonForm:
    table = TopicTable(data_version=registration.data_version, topic_config_table=registration.topics)
    return _JsonForm(topic_config_serialize_wrapper=table, filter_server_list=registration.filter_servers)


# --- compressed format ---


def _deflate(registration: RegistrationBody) -> bytes:
    topics = [_with_length(_topic_text(topic).encode()) for topic in registration.topics.values()]
    parts = (
        _with_length(encode_json(registration.data_version)),
        _INT32.pack(len(topics)),
        *topics,
        _with_length(encode_json(registration.filter_servers)),
    )
    return zlib.compress(b"".join(parts), level=9)


def _with_length(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _topic_text(topic: TopicConfig) -> str:
    numbers = f"{topic.read_queue_nums} {topic.write_queue_nums} {int(topic.perm)}"
    return f"{topic.topic_name} {numbers} {topic.topic_filter_type.name}"


class _Inflated:
    """Reads the decompressed bytes from the start; every length is checked against the remaining bytes."""

    def __init__(self, body: bytes) -> None:
        self._data = _inflate(body)
        self._position = 0

    def registration(self) -> RegistrationBody:
        data_version = decode_json(self._bytes("data version"), DataVersion)
        topics = [self._topic() for _ in range(self._topic_count())]
        filter_servers = decode_json(self._bytes("filter servers"), list[str])
        return RegistrationBody(
            data_version=data_version,
            topics={topic.topic_name: topic for topic in topics},
            filter_servers=filter_servers,
        )

    def _topic_count(self) -> int:
        count = self._int("number of topics")
        left = len(self._data) - self._position
        if not 0 <= count <= min(TOPICS_MAX, left // _ENTRY_MIN):
            _fail(f"{count} topics announced, {left} bytes left; at most {TOPICS_MAX} topics are accepted")
        return count

    def _topic(self) -> TopicConfig:
        text = str(self._bytes("topic"), "utf-8", "replace")
        words = text.split(" ", 5)
        if len(words) < 5 or not words[0]:
            _fail(f"a topic must be 'name read write perm filterType', got {text[:200]!r}")
        name, read, write, perm, filter_type = words[:5]
        try:
            return TopicConfig(
                topic_name=name,
                read_queue_nums=_number(read),
                write_queue_nums=_number(write),
                perm=_number(perm),
                topic_filter_type=TopicFilterType(filter_type),
            )
        except ValueError as error:
            raise BodyError(f"registration: topic {text[:200]!r} is malformed: {error}") from error

    def _bytes(self, what: str) -> bytes:
        length = self._int(f"length of the {what}")
        end = self._position + length
        if length < 0 or end > len(self._data):
            _fail(f"{what} of {length} bytes announced, {len(self._data) - self._position} left")
        data = self._data[self._position : end]
        self._position = end
        return data

    def _int(self, what: str) -> int:
        if self._position + _INT32.size > len(self._data):
            _fail(f"it ends before the {what}")
        (number,) = _INT32.unpack_from(self._data, self._position)
        self._position += _INT32.size
        return int(number)


def _number(word: str) -> int:
    if len(word) > len("2147483647") or not (word.isascii() and word.isdigit()):
        raise ValueError(f"{word[:20]!r} is not a valid number")
    return int(word)


def _inflate(body: bytes) -> bytes:
    try:
        return decompress(body, _ZLIB, INFLATED_MAX)
    except RecordError as error:
        raise BodyError(f"the compressed registration cannot be read: {error}") from error


def _fail(reason: str) -> NoReturn:
    raise BodyError(f"the registration cannot be read: {reason}")


# --- routes and cluster maps ---


class _QueueDataText(msgspec.Struct, kw_only=True, rename="camel"):
    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_syn_flag: int
    topic_sys_flag: int


class _RouteText(msgspec.Struct, kw_only=True, rename="camel"):
    queue_datas: list[_QueueDataText]
    broker_datas: list[BrokerData]
    filter_server_table: dict[str, list[str]]
    order_topic_conf: str | None


def encode_route(route: TopicRoute, *, standard: bool) -> bytes:
    """The route for one client: `standard` JSON for clients that accept it, fastjson's dialect for all others."""
    text = _RouteText(
        queue_datas=[_with_both_flags(queues) for queues in route.queue_datas],
        broker_datas=route.broker_datas,
        filter_server_table=route.filter_server_table,
        order_topic_conf=route.order_topic_conf,
    )
    return encode_json(text, standard=standard)


def decode_route(data: bytes) -> TopicRoute:
    """A route in either format, from a nameserver of any release."""
    return decode_json(data, TopicRoute)


def encode_cluster_map(cluster: ClusterMap) -> bytes:
    """Always in fastjson's dialect, as in every release of Apache RocketMQ."""
    return encode_json(cluster)


def decode_cluster_map(data: bytes) -> ClusterMap:
    return decode_json(data, ClusterMap)


def _with_both_flags(queues: QueueData) -> _QueueDataText:
    return _QueueDataText(
        broker_name=queues.broker_name,
        read_queue_nums=queues.read_queue_nums,
        write_queue_nums=queues.write_queue_nums,
        perm=queues.perm,
        topic_syn_flag=queues.topic_sys_flag,
        topic_sys_flag=queues.topic_sys_flag,
    )
