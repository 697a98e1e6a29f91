"""Pulls: how every consumer gets its messages. One that finds nothing may wait (waiting.py)."""

import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field

from ariane.broker.groups.offsets import ConsumerOffsets, can_be_committed
from ariane.broker.pull.checks import Admissions, PullChecks
from ariane.broker.pull.fast_path import PullLane
from ariane.broker.pull.long_polling import ParkedPull, ParkedPulls
from ariane.broker.pull.reads import Reading, read, read_cached
from ariane.broker.pull.responses import FoundAnswers, offset_moved_event, pull_answer, pull_code, suggested_broker
from ariane.broker.settings import BrokerSettings
from ariane.broker.writer import Intake
from ariane.clock import Clock
from ariane.errors import ArianeError, RequestFailed, StoreError
from ariane.rpc.handlers import LATER, Call, Later, handles, lane
from ariane.store.read.result import ReadResult, ReadStatus
from ariane.store.service import StoreService
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.requests.pull import LitePull, Pull, PullAnswer, PullMessage, PullSysFlag

log = logging.getLogger(__name__)

Pulled = PullAnswer | bytes | Later

_COMMIT_OFFSET = int(PullSysFlag.COMMIT_OFFSET)
_SUSPEND = int(PullSysFlag.SUSPEND)
_SUCCESS = ResponseCode.SUCCESS


@dataclass
class PullHandlers:
    settings: BrokerSettings
    checks: PullChecks
    offsets: ConsumerOffsets
    service: StoreService
    intake: Intake
    parked: ParkedPulls
    clock: Clock
    store_host: bytes
    _found: FoundAnswers = field(init=False, default_factory=FoundAnswers)
    _lane: PullLane = field(init=False)

    def __post_init__(self) -> None:
        store, counters, admissions = self.service.store, self.intake.counters, Admissions(self.checks)
        self._lane = PullLane(self.settings, admissions, self.offsets, store, counters, self._found)

    @lane
    def take_frames(self, connection: Connection, data: bytes, position: int) -> int:
        return self._lane.take(connection, data, position)

    @handles(PullMessage)
    def pull(self, ask: PullMessage, call: Call) -> Pulled | Awaitable[Pulled]:
        return self._pull(ask, call)

    @handles(LitePull)
    def lite_pull(self, ask: LitePull, call: Call) -> Pulled | Awaitable[Pulled]:
        return self._pull(ask, call)

    def _pull(self, ask: Pull, call: Call) -> Pulled | Awaitable[Pulled]:
        group, wanted = self.checks.admit(ask)
        if ask.sys_flag & _COMMIT_OFFSET:
            self._commit(ask)
        pull = ParkedPull(call, ask, group, wanted, ask.queue_offset, self._resume)
        result = read_cached(self.service.store, self._reading(pull))
        return self._pull_cold(pull) if result is None else self._conclude(pull, result)

    def _commit(self, ask: Pull) -> None:
        queue = self.service.store.parts.queues.get(ask.topic, ask.queue_id)
        if queue is not None and can_be_committed(ask.commit_offset, queue.max_offset):
            self.offsets.commit(ask.consumer_group, ask.topic, ask.queue_id, ask.commit_offset)

    async def _pull_cold(self, pull: ParkedPull) -> Pulled:
        began = self.clock.monotonic()
        result = await read(self.service, self._reading(pull))
        size = sum(map(len, result.slices))
        waited_s = self.clock.monotonic() - began
        self.intake.counters.read_cold(pull.ask.topic, pull.ask.consumer_group, len(result.slices), size, waited_s)
        return self._conclude(pull, result)

    def _conclude(self, pull: ParkedPull, result: ReadResult) -> Pulled:
        code = pull_code(result, pull.offset)
        if code is ResponseCode.PULL_NOT_FOUND and self._parks(pull):
            self._count(pull, result, 0)
            return LATER
        return self._answer(pull, code, result)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def _parks(self, pull: ParkedPull) -> bool:
        ask = pull.ask
        if not ask.sys_flag & _SUSPEND or pull.call.command.is_oneway:
            return False
        wait_ms = ask.suspend_timeout_millis if self.settings.long_polling else self.settings.short_polling_ms
        return wait_ms > 0 and self.parked.park(pull, wait_ms / 1000)

    def _resume(self, pull: ParkedPull, final: bool) -> None:
        """A parked pull reads again. What arrived but is not wanted is passed over, and it waits on."""
        try:
            result = read_cached(self.service.store, self._reading(pull))
            if result is None:  # no longer in memory: a pull that comes anew may wait for the disk
                pull.call.answer(self._come_again(pull))
                return
            code = pull_code(result, pull.offset)
            if not final and code != ResponseCode.SUCCESS and self._waits_on(pull, result):
                return
            pull.call.answer(self._answer(pull, code, result))
        except RequestFailed as error:
            pull.call.answer(Answer(code=error.code, remark=error.remark))
        except ArianeError as error:
            log.warning("parked pull failed", extra={"peer": pull.call.connection.peer, "reason": str(error)})
            pull.call.answer(Answer(code=ResponseCode.SYSTEM_ERROR, remark=str(error)))

    def _waits_on(self, pull: ParkedPull, result: ReadResult) -> bool:
        """Only at the queue's end: in the middle nothing would wake it."""
        if result.next_offset != result.max_offset or result.next_offset < pull.offset:
            return False
        pull.offset = result.next_offset
        return self.parked.park_again(pull)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer(self, pull: ParkedPull, code: ResponseCode, result: ReadResult) -> PullAnswer | bytes:
        if code is ResponseCode.PULL_OFFSET_MOVED:
            self._tell_offset_moved(pull, result)
        broker_id = suggested_broker(result, pull.group, self.settings.slave_read)
        size = sum(map(len, result.slices))
        self._count(pull, result, size)
        frame = self._found.frame(pull.call.command, result, broker_id, size) if code is _SUCCESS else None
        return pull_answer(code, result, broker_id) if frame is None else frame

    def _count(self, pull: ParkedPull, result: ReadResult, size: int) -> None:
        ask, counters = pull.ask, self.intake.counters
        if size:
            messages = len(result.slices)
            counters.got(ask.topic, ask.consumer_group, ask.queue_id, messages, size, result.next_offset)
        else:
            counters.got_nothing(ask.topic, ask.consumer_group, ask.queue_id, result.next_offset)

    def _come_again(self, pull: ParkedPull) -> PullAnswer | bytes:
        queue = self.service.store.parts.queues.get(pull.ask.topic, pull.ask.queue_id)
        result = ReadResult(
            status=ReadStatus.NO_MATCHED_MESSAGE,
            next_offset=pull.offset,
            min_offset=0 if queue is None else queue.min_offset,
            max_offset=0 if queue is None else queue.max_offset,
        )
        return self._answer(pull, ResponseCode.PULL_RETRY_IMMEDIATELY, result)

    def _tell_offset_moved(self, pull: ParkedPull, result: ReadResult) -> None:
        facts = {
            "group": pull.ask.consumer_group,
            "topic": pull.ask.topic,
            "queue": pull.ask.queue_id,
            "offset": pull.offset,
            "new_offset": result.next_offset,
        }
        log.warning("a group's offset is not in its queue: it is told to move", extra=facts)
        event = offset_moved_event(
            pull.ask, pull.offset, result, self.settings.name, self.clock.now_ms(), self.store_host
        )
        try:
            self.intake.put(event)
        except StoreError as error:  # the answer does not depend on it
            log.warning("offset moved: the event was not stored", extra={"reason": str(error)})

    def _reading(self, pull: ParkedPull) -> Reading:
        return Reading.of(pull.ask, pull.offset, pull.filter)
