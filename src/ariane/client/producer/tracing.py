"""Sends message traces to the trace topic in the background. Drops traces if the buffer is full; never waits.

Tracer.open(instance, group, "PRODUCE") -> tracer.add(trace)        a consumer opens its own with "CONSUME"
"""

import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal

from ariane.client.core.instance import Instance
from ariane.client.core.trace_format import Trace
from ariane.client.producer.delivery import Delivery
from ariane.client.producer.message import prepare, unique_keys_for
from ariane.client.producer.request import Single
from ariane.client.producer.settings import ProducerSettings
from ariane.errors import ArianeError
from ariane.lifecycle import background, every
from ariane.model.ids import GROUP_LENGTH_MAX
from ariane.model.message import Message

log = logging.getLogger(__name__)

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

_BUFFER_MAX = 2048
_BATCH_MAX = 100
_TEXT_BYTES_MAX = 118_000
_KEYS_BYTES_MAX = 16_000  # half of what the properties of a message may take
_INTERVAL_S = 0.5
_TIMEOUT_S = 5.0


class Tracer:
    """Made by `Tracer.open`."""

    def __init__(self, instance: Instance, group: str, what: Literal["PRODUCE", "CONSUME"], topic: str) -> None:
        name = f"_INNER_TRACE_PRODUCER-{group}-{what}"[:GROUP_LENGTH_MAX]
        self._settings = ProducerSettings(group=name, send_timeout_s=_TIMEOUT_S)
        self._delivery = Delivery(instance, self._settings)
        self._next_key = unique_keys_for(instance).next
        self._buffer: deque[Trace] = deque()
        self.topic = topic
        self.lost = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, instance: Instance, group: str, what: Literal["PRODUCE", "CONSUME"], topic: str = TRACE_TOPIC
    ) -> AsyncIterator["Tracer"]:
        tracer = cls(instance, group, what, topic)
        try:
            async with background(partial(every, instance.clock, _INTERVAL_S, tracer.flush, _INTERVAL_S)):
                yield tracer
        finally:
            await tracer.flush()

    def add(self, trace: Trace) -> None:
        """Never waits and never fails; counts in `lost` the traces that did not fit the buffer."""
        if len(self._buffer) >= _BUFFER_MAX:
            self.lost += 1
            return
        self._buffer.append(trace)

    async def flush(self) -> None:
        """Sends the traces that are buffered at the call. A failure loses the traces of that message."""
        for _ in range(-(-len(self._buffer) // _BATCH_MAX)):
            traces = self._take()
            if not traces:
                return
            try:
                await self._send(traces)
            except ArianeError as error:
                self.lost += len(traces)
                log.warning("traces lost", extra={"count": len(traces), "reason": str(error)})

    def _take(self) -> list[Trace]:
        """As many as fit one message."""
        traces: list[Trace] = []
        text_bytes = keys_bytes = 0
        while self._buffer and len(traces) < _BATCH_MAX:
            trace = self._buffer[0]
            text_bytes += len(trace.text.encode())
            keys_bytes += sum(len(key.encode()) + 1 for key in trace.keys)
            if traces and (text_bytes > _TEXT_BYTES_MAX or keys_bytes > _KEYS_BYTES_MAX):
                break
            traces.append(self._buffer.popleft())
        return traces

    async def _send(self, traces: list[Trace]) -> None:
        keys = frozenset[str]().union(*(trace.keys for trace in traces))
        body = "".join(trace.text for trace in traces).encode()
        message = Message(topic=self.topic, body=body, keys=sorted(keys))
        prepared = await prepare(message, self._next_key(), self._settings)
        await self._delivery.send(Single(prepared))
