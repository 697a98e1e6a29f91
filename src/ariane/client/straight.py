"""The straight line for sends: a usual message, or a batch of them, to a broker that is known and connected.

One frame from a template, one future, one await. What goes wrong, or is not as usual, goes on in delivery.py, which has
the other attempts, the other brokers and the words.
"""

from collections.abc import Sequence

from ariane.client.delivery import Delivery
from ariane.client.envelope import Envelope
from ariane.client.instance import Instance
from ariane.client.parcel import Batch, Parcel, Single
from ariane.client.producer_settings import ProducerSettings
from ariane.client.send_result import SendResult, result_of, results_of
from ariane.client.send_template import BatchTemplate, SendTemplate
from ariane.client.short_calls import short_call
from ariane.errors import RequestFailed, TransportError, WireError
from ariane.model.message import Message
from ariane.model.route import MessageQueue
from ariane.wire.message_id import UniqueKeys
from ariane.wire.requests.send import SendBatch, SendMessageV2

_TEMPLATES_MAX = 4096  # a program that sends to ever new topics must not fill the memory with them


class StraightLine:
    def __init__(self, instance: Instance, settings: ProducerSettings, delivery: Delivery, keys: UniqueKeys) -> None:
        self._instance = instance
        self._clock = instance.clock
        self._settings = settings
        self._delivery = delivery
        self._keys = keys
        self._unit_mode = instance.settings.unit_mode
        self._templates: dict[MessageQueue, SendTemplate] = {}
        self._batch_templates: dict[tuple[MessageQueue, bool], BatchTemplate] = {}

    async def send(self, message: Message, text: str, timeout_s: float | None) -> SendResult:
        """`text` is what `usual_text` wrote for `message`."""
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        now_ms, began = self._clock.now_ms(), self._clock.monotonic()
        unique_key = self._keys.next_at(now_ms)
        text = f"{text}UNIQ_KEY\x01{unique_key}\x02"
        queues = self._delivery.known_queues(message.topic)
        if queues is None:
            return await self._general(message, unique_key, text, timeout_s, None)
        queue = self._delivery.choose(queues)
        connection = self._instance.ready_master(queue.broker_name)
        if connection is None:
            return await self._general(message, unique_key, text, timeout_s, queue)
        opaque = connection.next_opaque()
        frame = self._template(queue).frame(opaque, now_ms, text, message.body)
        if frame is None:
            return await self._general(message, unique_key, text, timeout_s, queue)
        try:
            answer = await short_call(connection, SendMessageV2, opaque, frame, self._limit_s(queues, timeout_s))
        except (TransportError, RequestFailed, WireError) as error:
            left_s = max(0.0, began + timeout_s - self._clock.monotonic())
            parcel = self._parcel(message, unique_key, text)
            (result,) = await self._delivery.go_on(parcel, queue, error, timeout_s, left_s)
            return result
        if self._settings.latency_fault:
            self._delivery.took(queue, self._clock.monotonic() - began)
        return result_of(answer, queue, unique_key)

    async def send_parcel(self, parcel: Parcel, fixed: MessageQueue | None) -> list[SendResult]:
        """What was gathered. All but a batch that may go to any queue takes the general way."""
        queues = self._delivery.known_queues(parcel.topic)
        if not isinstance(parcel, Batch) or fixed is not None or queues is None:
            return await self._delivery.send(parcel, fixed)
        began, timeout_s = self._clock.monotonic(), self._settings.send_timeout_s
        queue = self._delivery.choose(queues)
        connection = self._instance.ready_master(queue.broker_name)
        if connection is None:
            return await self._delivery.send(parcel, None, None, queue)
        opaque = connection.next_opaque()
        frame = self._batch_template(queue, wait_stored=parcel.wait_stored).frame(opaque, self._clock.now_ms(), parcel)
        if frame is None:
            return await self._delivery.send(parcel, None, None, queue)
        try:
            answer = await short_call(connection, SendBatch, opaque, frame, self._limit_s(queues, timeout_s))
        except (TransportError, RequestFailed, WireError) as error:
            left_s = max(0.0, began + timeout_s - self._clock.monotonic())
            return await self._delivery.go_on(parcel, queue, error, timeout_s, left_s)
        if self._settings.latency_fault:
            self._delivery.took(queue, self._clock.monotonic() - began)
        return results_of(answer, queue, parcel.unique_keys)

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

    async def _general(
        self, message: Message, unique_key: str, text: str, timeout_s: float, first: MessageQueue | None
    ) -> SendResult:
        """`first` has had its turn: another would leave queues without messages."""
        (result,) = await self._delivery.send(self._parcel(message, unique_key, text), None, timeout_s, first)
        return result

    def _parcel(self, message: Message, unique_key: str, text: str) -> Single:
        return Single(Envelope(message, unique_key, text, message.body, 0), unit_mode=self._unit_mode)
