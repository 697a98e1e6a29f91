"""Answers about messages that wait."""

from dataclasses import dataclass

from ariane.broker.schedule.levels import DelayedDelivery
from ariane.rpc.handlers import Call, handles
from ariane.wire.requests.offsets import DelayOffsetsAnswer, DelayOffsetTable, GetAllDelayOffsets


@dataclass(frozen=True)
class ScheduleHandlers:
    delayed: DelayedDelivery

    @handles(GetAllDelayOffsets)
    def delay_offsets(self, ask: GetAllDelayOffsets, call: Call) -> DelayOffsetsAnswer:
        return DelayOffsetsAnswer(body=DelayOffsetTable(offset_table=self.delayed.offsets()))
