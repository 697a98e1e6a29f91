"""Traces of consumption: one record before a handler runs, one after."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from ariane.client.received import Received
from ariane.client.trace_text import ContextCode, after_consumption, before_consumption
from ariane.client.tracing import Tracer
from ariane.clock import Clock
from ariane.model.message import Property

_NO_REGION = "DefaultRegion"


@dataclass(frozen=True, slots=True)
class ConsumeTrace:
    tracer: Tracer
    group: str
    clock: Clock

    def before(self, messages: Sequence[Received]) -> str:
        """The id that ties the two records together."""
        request_id = uuid4().hex.upper()
        for message in filter(_wants_trace, messages):
            self.tracer.add(
                before_consumption(
                    timestamp_ms=self.clock.now_ms(),
                    region=message.properties.get(Property.MSG_REGION, _NO_REGION),
                    group=self.group,
                    request_id=request_id,
                    message_id=message.message_id,
                    retries=message.reconsume_times,
                    keys=message.keys,
                )
            )
        return request_id

    def after(self, request_id: str, messages: Sequence[Received], done: int, code: ContextCode, cost_ms: int) -> None:
        for index, message in enumerate(messages):
            if _wants_trace(message):
                self.tracer.add(
                    after_consumption(
                        timestamp_ms=self.clock.now_ms(),
                        group=self.group,
                        request_id=request_id,
                        message_id=message.message_id,
                        cost_ms=cost_ms,
                        success=index < done,
                        keys=message.keys,
                        context_code=ContextCode.SUCCESS if index < done else code,
                    )
                )


def _wants_trace(message: Received) -> bool:
    return message.properties.get(Property.TRACE_SWITCH) != "false"
