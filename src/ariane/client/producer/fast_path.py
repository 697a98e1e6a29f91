"""Fast path of sends: a simple message, or a batch of them, to a broker whose connection is open.

One frame from a template, one future, one await. Failures and everything uncommon are handled by the general path in
producer/delivery.py, which has the retries, the other brokers and the error messages.

Templates: the headers of single sends and of batches are encoded once per queue and filled in for each request. Between
two messages for one queue only the opaque number, the time and the property text differ. To fill them in takes 1.2 us;
the general path, which builds and encodes a request, takes 6 us.

Simple messages are what nearly all messages are: a topic, a body of bytes that is sent as it is, perhaps a key, a tag
and some properties, all of printable text. `encode_simple_properties` checks and encodes them in one pass, which takes
0.8 us; the checks and texts of the general path (producer/message.py) take 1.9 us. It rejects nothing: every other
message goes to the general path, which also has the error messages.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ariane.client.core.instance import Instance
from ariane.client.core.raw_call import call_with_frame
from ariane.client.producer.delivery import Delivery
from ariane.client.producer.message import PreparedMessage, topic_problem
from ariane.client.producer.request import Batch, SendRequest, Single
from ariane.client.producer.result import SendResult, result_of, results_of
from ariane.client.producer.settings import ProducerSettings
from ariane.errors import RequestFailed, TransportError, WireError
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import RESERVED_PROPERTIES, Message
from ariane.model.route import MessageQueue
from ariane.wire.fast.templates import frame_of, frame_of_pieces, header_form
from ariane.wire.message_id import UniqueKeys
from ariane.wire.properties import NAME_END, PAIR_END, UNIQUE_KEY_START, WAIT_FALSE, WAIT_TRUE
from ariane.wire.requests.send import SendBatch, SendMessageV2

# --- header templates ---

_quoted = msgspec.json.Encoder().encode
_TIME_MARK, _TEXT_MARK = 3_000_222_000, "the property text"
_TIME = {b"%d" % _TIME_MARK: b"%d"}
_MARKS = {**_TIME, _quoted(_TEXT_MARK): b"%b"}


class SendTemplate:
    """The header of single sends to one queue."""

    __slots__ = ("_form",)

    def __init__(self, queue: MessageQueue, settings: ProducerSettings, *, unit_mode: bool) -> None:
        sample = SendMessageV2(
            producer_group=settings.group,
            topic=queue.topic,
            default_topic=settings.template_topic,
            default_topic_queue_nums=settings.template_queues,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=_TIME_MARK,
            flag=0,
            properties=_TEXT_MARK,
            reconsume_times=0,
            unit_mode=unit_mode,
            batch=False,
        )
        self._form = header_form(sample, _MARKS)

    def frame(self, opaque: int, now_ms: int, text: str, body: bytes) -> bytes | None:
        """None if only the general path can encode it, or report why it cannot be encoded."""
        return None if self._form is None else frame_of(self._form % (opaque, now_ms, _quoted(text)), body)


class BatchTemplate:
    """The header of batches to one queue.

    The property text of a batch says only whether to wait for the disk, so just the opaque number and the time differ.
    """

    __slots__ = ("_form",)

    def __init__(self, queue: MessageQueue, settings: ProducerSettings, *, wait_stored: bool, unit_mode: bool) -> None:
        sample = Batch(
            topic=queue.topic,
            unique_keys=[],
            bodies=[],
            texts=[],
            flags=[],
            wait_stored=wait_stored,
            unit_mode=unit_mode,
        )
        self._form = header_form(sample.wire_request(queue, settings, _TIME_MARK), _TIME)

    def frame(self, opaque: int, now_ms: int, batch: Batch) -> bytes | None:
        """None if only the general path can encode it, or report why it cannot be encoded."""
        return None if self._form is None else frame_of_pieces(self._form % (opaque, now_ms), *batch.pieces())


# --- sending ---

_TEMPLATES_MAX = 4096  # bounds the memory of a program that sends to more and more topics


class ProducerFastPath:
    def __init__(self, instance: Instance, settings: ProducerSettings, delivery: Delivery, keys: UniqueKeys) -> None:
        self._instance = instance
        self._clock = instance.clock
        self._settings = settings
        self._delivery = delivery
        self._selection = delivery.selection
        self._keys = keys
        self._unit_mode = instance.settings.unit_mode
        self._templates: dict[MessageQueue, SendTemplate] = {}
        self._batch_templates: dict[tuple[MessageQueue, bool], BatchTemplate] = {}

    async def send(self, message: Message, text: str, timeout_s: float | None) -> SendResult:
        """`text` is the result of `encode_simple_properties` for `message`."""
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        now_ms, began = self._clock.now_ms(), self._clock.monotonic()
        unique_key = self._keys.next_at(now_ms)
        text = f"{text}{UNIQUE_KEY_START}{unique_key}{PAIR_END}"
        queues = self._delivery.cached_queues(message.topic)
        if queues is None:
            return await self._send_general(message, unique_key, text, timeout_s, None)
        queue = self._selection.choose(queues)
        connection = self._instance.ready_master(queue.broker_name)
        if connection is None:
            return await self._send_general(message, unique_key, text, timeout_s, queue)
        opaque = connection.next_opaque()
        frame = self._template(queue).frame(opaque, now_ms, text, message.body)
        if frame is None:
            return await self._send_general(message, unique_key, text, timeout_s, queue)
        try:
            response = await call_with_frame(connection, SendMessageV2, opaque, frame, self._limit_s(queues, timeout_s))
        except (TransportError, RequestFailed, WireError) as error:
            left_s = max(0.0, began + timeout_s - self._clock.monotonic())
            single = self._single(message, unique_key, text)
            (result,) = await self._delivery.resume_after(single, queue, error, timeout_s, left_s)
            return result
        if self._settings.latency_fault:
            self._selection.record_latency(queue, self._clock.monotonic() - began)
        return result_of(response, queue, unique_key)

    async def send_request(self, send_request: SendRequest, fixed: MessageQueue | None) -> list[SendResult]:
        """Sends an accumulated batch. The fast path is for batches that may go to any queue."""
        queues = self._delivery.cached_queues(send_request.topic)
        if not isinstance(send_request, Batch) or fixed is not None or queues is None:
            return await self._delivery.send(send_request, fixed)
        began, timeout_s = self._clock.monotonic(), self._settings.send_timeout_s
        queue = self._selection.choose(queues)
        connection = self._instance.ready_master(queue.broker_name)
        if connection is None:
            return await self._delivery.send(send_request, None, None, queue)
        opaque = connection.next_opaque()
        frame = self._batch_template(queue, wait_stored=send_request.wait_stored).frame(
            opaque, self._clock.now_ms(), send_request
        )
        if frame is None:
            return await self._delivery.send(send_request, None, None, queue)
        try:
            response = await call_with_frame(connection, SendBatch, opaque, frame, self._limit_s(queues, timeout_s))
        except (TransportError, RequestFailed, WireError) as error:
            left_s = max(0.0, began + timeout_s - self._clock.monotonic())
            return await self._delivery.resume_after(send_request, queue, error, timeout_s, left_s)
        if self._settings.latency_fault:
            self._selection.record_latency(queue, self._clock.monotonic() - began)
        return results_of(response, queue, send_request.unique_keys)

    def _limit_s(self, queues: Sequence[MessageQueue], timeout_s: float) -> float:
        """Half of the time while another broker could be tried, as in delivery.py."""
        has_choice = self._settings.retries and queues[0].broker_name != queues[-1].broker_name
        return timeout_s / 2 if has_choice else timeout_s

    def _template(self, queue: MessageQueue) -> SendTemplate:
        template = self._templates.get(queue)
        if template is None:
            if len(self._templates) >= _TEMPLATES_MAX:
                self._templates.clear()
            template = self._templates[queue] = SendTemplate(queue, self._settings, unit_mode=self._unit_mode)
        return template

    def _batch_template(self, queue: MessageQueue, *, wait_stored: bool) -> BatchTemplate:
        template = self._batch_templates.get((queue, wait_stored))
        if template is None:
            if len(self._batch_templates) >= _TEMPLATES_MAX:
                self._batch_templates.clear()
            template = self._batch_templates[queue, wait_stored] = BatchTemplate(
                queue, self._settings, wait_stored=wait_stored, unit_mode=self._unit_mode
            )
        return template

    async def _send_general(
        self, message: Message, unique_key: str, text: str, timeout_s: float, first: MessageQueue | None
    ) -> SendResult:
        """`first` has been chosen by round robin: to choose again would leave queues without messages."""
        (result,) = await self._delivery.send(self._single(message, unique_key, text), None, timeout_s, first)
        return result

    def _single(self, message: Message, unique_key: str, text: str) -> Single:
        return Single(PreparedMessage(message, unique_key, text, message.body, 0), unit_mode=self._unit_mode)


# --- simple messages ---

_TEXT_CHARS_MAX = 8000  # characters: even at four bytes each, this much fits a record
_KEY_CHARS_MAX = 2000
_LISTS = (list, tuple)


def encode_simple_properties(message: Message, body_bytes_below: int) -> str | None:
    """The property text of a simple message up to its unique key; None if the message needs the general path."""
    body, text = message.body, ""
    if (
        type(message) is not Message
        or type(body) is not bytes
        or not 0 < len(body) < body_bytes_below
        or message.sharding_key is not None
        or message.delay_level
        or message.deliver_at is not None
        or message.flag
        or not is_simple_topic(message.topic)
    ):
        return None
    if message.properties:
        for name, value in message.properties.items():
            if not _is_text(name) or not _is_text(value) or name in RESERVED_PROPERTIES:
                return None
            text = f"{text}{name}{NAME_END}{value}{PAIR_END}"
    keys_and_tags = encode_keys_and_tags(message.keys, message.tags)
    if keys_and_tags is None or len(text) + len(keys_and_tags) > _TEXT_CHARS_MAX:
        return None
    return text + keys_and_tags + WAIT_TRUE if message.wait_stored else text + keys_and_tags + WAIT_FALSE


def encode_keys_and_tags(keys: Any, tags: Any) -> str | None:
    """The property text of at most one key and one tag; None if they need the general path.

    A simple key or tag has no blanks, which separate keys, and only printable characters, so no separators either.
    """
    text = "" if tags is None else _tag_text(tags) if type(tags) is str else None
    if type(keys) is not str:
        if not keys:
            return text
        if type(keys) not in _LISTS or len(keys) != 1 or type(keys[0]) is not str or not keys[0]:
            return None
        keys = keys[0]
    if text is None or " " in keys or not keys.isprintable() or len(keys) > _KEY_CHARS_MAX:
        return None
    return f"KEYS{NAME_END}{keys}{PAIR_END}{text}" if keys else text


@lru_cache(maxsize=4096)  # consumers filter by tags, so a program has few
def _tag_text(tag: str) -> str | None:
    is_simple = tag and " " not in tag and tag.isprintable() and "||" not in tag and len(tag) <= _KEY_CHARS_MAX
    return f"TAGS{NAME_END}{tag}{PAIR_END}" if is_simple else None


def _is_text(text: object) -> bool:
    return type(text) is str and text.isprintable() and text.strip() != ""


@lru_cache(maxsize=4096)  # a program sends to few topics, and to each of them often
def is_simple_topic(topic: str) -> bool:
    return topic_problem(topic) is None and not topic.startswith(RETRY_PREFIX)
