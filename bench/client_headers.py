"""Which header format our client should send: CPU us of its work for a message, JSON headers beside binary ones.

    python -m bench.client_headers

Encoding is that of a template, the way of the producer's fast path: `SendTemplate` for JSON, and the same made of a
binary header here. Decoding is the client's general path, which all its responses take. What the broker's own fast
path takes for either is measured by `bench.send_path` and `bench.send_path --binary`.
"""

import struct
from collections.abc import Callable, Iterator

from ariane.client.producer.fast_path import SendTemplate
from ariane.client.producer.settings import ProducerSettings
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.codes import Serialization
from ariane.wire.exchange import read_response_to, request_command, response_command
from ariane.wire.frame import Command, FrameDecoder, encode_binary_header, encode_frame
from ariane.wire.properties import NAME_END, PAIR_END, WAIT_TRUE
from ariane.wire.requests.send import SendMessageV2, SendResponse
from bench.timing import us_per_call

QUEUE = MessageQueue(topic="orders-of-the-shop", broker_name="broker-a", queue_id=3)
SETTINGS = ProducerSettings(group="shop")
TEXT = "".join(
    f"{name}{NAME_END}{value}{PAIR_END}"
    for name, value in (("KEYS", "order-1234567"), ("TAGS", "paid"), ("UNIQ_KEY", "7F0000010A2B18B4AAC200000000CAFE"))
) + WAIT_TRUE  # fmt: skip
NOW_MS = 1_795_000_000_000
_FIELDS_LENGTH_AT = 8
"""Behind the opaque number are the flag and the length of the remark, which is empty."""
_OPAQUE_MARK, _TIME_MARK, _TEXT_MARK = 0x7A7B7C7D, 3_000_222_000_111, "the property text"

_pack_prefix = struct.Struct(">iI").pack
_pack_number = struct.Struct(">i").pack


def main() -> None:
    figures = dict(rows())
    print(f"{'CPU us, body of 1 KiB, a key, a tag, a unique key':<52}{'JSON':>8}{'binary':>8}{'binary / JSON':>15}")
    for name, (json_us, binary_us) in figures.items():
        print(f"{name:<52}{json_us:>8.2f}{binary_us:>8.2f}{binary_us / json_us:>15.2f}")
    totals = [sum(column) for column in zip(*figures.values(), strict=True)]
    print(f"{'both':<52}{totals[0]:>8.2f}{totals[1]:>8.2f}{totals[1] / totals[0]:>15.2f}")


def rows() -> Iterator[tuple[str, tuple[float, float]]]:
    body = bytes(1024)
    json_template, binary_template = SendTemplate(QUEUE, SETTINGS, unit_mode=False), BinaryTemplate()
    _check_equal(json_template.frame(7, NOW_MS, TEXT, body), binary_template.frame(7, NOW_MS, TEXT, body))
    yield (
        "a send's frame from a template",
        (
            us_per_call(lambda: json_template.frame(7, NOW_MS, TEXT, body)),
            us_per_call(lambda: binary_template.frame(7, NOW_MS, TEXT, body)),
        ),
    )
    responses = [_response_frame(kind) for kind in (Serialization.JSON, Serialization.BINARY)]
    yield "a send's response, frame to struct", tuple(us_per_call(_reading(frame)) for frame in responses)  # type: ignore[misc]


class BinaryTemplate:
    """The header of single sends to one queue, in the binary format."""

    def __init__(self) -> None:
        header = encode_binary_header(request_command(_sample(_TIME_MARK, _TEXT_MARK), opaque=_OPAQUE_MARK))
        text = _pack_number(len(_TEXT_MARK)) + _TEXT_MARK.encode()
        before, self._end = header.split(text)
        before, self._after_time = before.split(b"%d" % _TIME_MARK)
        self._begin, after_opaque = before.split(_pack_number(_OPAQUE_MARK))
        self._bytes = len(header) - len(_TEXT_MARK)
        self._fields_bytes = int.from_bytes(after_opaque[_FIELDS_LENGTH_AT:][:4], "big") - len(_TEXT_MARK)
        self._flag_and_remark = after_opaque[:_FIELDS_LENGTH_AT]
        self._before_time = after_opaque[_FIELDS_LENGTH_AT + 4 :]

    def frame(self, opaque: int, now_ms: int, text: str, body: bytes) -> bytes:
        data = text.encode()
        size = self._bytes + len(data)
        return b"".join(
            (
                _pack_prefix(4 + size + len(body), _KIND | size),
                self._begin,
                _pack_number(opaque),
                self._flag_and_remark,
                _pack_number(self._fields_bytes + len(data)),
                self._before_time,
                b"%d" % now_ms,
                self._after_time,
                _pack_number(len(data)),
                data,
                self._end,
                body,
            )
        )


_KIND = Serialization.BINARY << 24


def _sample(now_ms: int, text: str) -> SendMessageV2:
    return SendMessageV2(
        producer_group=SETTINGS.group,
        topic=QUEUE.topic,
        default_topic=SETTINGS.template_topic,
        default_topic_queue_nums=SETTINGS.template_queues,
        queue_id=QUEUE.queue_id,
        sys_flag=0,
        born_timestamp=now_ms,
        flag=0,
        properties=text,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )


def _check_equal(one: bytes | None, other: bytes) -> None:
    """Both frames carry the same command, or the comparison would be of different things."""
    assert one is not None
    commands = [_command(frame) for frame in (one, other)]
    assert commands[0].ext == commands[1].ext, commands
    assert commands[0].body == commands[1].body
    assert commands[0].opaque == commands[1].opaque


def _command(frame: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(frame)
    (command,) = decoder
    return command


def _response_frame(kind: Serialization) -> bytes:
    request = request_command(_sample(NOW_MS, TEXT), opaque=7)
    request.serialization = kind
    message_id = "7F00000100002A9F00000000000001F4"
    response = SendResponse(msg_id=message_id, queue_id=3, queue_offset=QueueOffset(123456))
    return encode_frame(response_command(request, response))


def _reading(frame: bytes) -> Callable[[], object]:
    return lambda: read_response_to(SendMessageV2, _command(frame))


if __name__ == "__main__":
    main()
