"""The pull handler: how every consumer gets its messages. A pull that finds nothing may wait (long_polling.py).

This is the general path, which handles every pull and reports every error. Most pulls that find messages take the fast
path (fast_path.py), which decodes to the same `Pull` and shares the checks, the reader and the responses.
"""

import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field

from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.pull.checks import PullCheckCache, PullChecks
from ariane.broker.pull.fast_path import PullFastPath
from ariane.broker.pull.long_polling import PullWaiter, PullWaiters
from ariane.broker.pull.reads import Reading, commit_offset_of, read, read_cached
from ariane.broker.pull.responses import (
    FoundResponses,
    moved_at_slave,
    offset_moved_event,
    pull_code,
    pull_response,
    suggested_broker,
)
from ariane.broker.settings import BrokerSettings
from ariane.broker.writer import MessageWriter
from ariane.clock import Clock
from ariane.errors import ArianeError, RequestFailed, StoreError
from ariane.logs import RepeatedWarnings
from ariane.rpc.handlers import DEFERRED, Call, Deferred, GroupFastPath, handles
from ariane.store.read.result import ReadResult, ReadStatus
from ariane.store.service import StoreService
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.requests.pull import LitePull, Pull, PullMessage, PullResponse, PullSysFlag

log = logging.getLogger(__name__)

Pulled = PullResponse | bytes | Deferred

_SUSPEND = int(PullSysFlag.SUSPEND)
_SUCCESS = ResponseCode.SUCCESS


@dataclass
class PullHandlers:
    settings: BrokerSettings
    checks: PullChecks
    offsets: ConsumerOffsets
    service: StoreService
    writer: MessageWriter
    pull_waiters: PullWaiters
    clock: Clock
    store_host: bytes
    _found: FoundResponses = field(init=False, default_factory=FoundResponses)
    _warnings: RepeatedWarnings = field(init=False, default_factory=lambda: RepeatedWarnings(log))
    fast_path: GroupFastPath = field(init=False)

    def __post_init__(self) -> None:
        store, counters, checks = self.service.store, self.writer.counters, PullCheckCache(self.checks)
        self.fast_path = PullFastPath(self.settings, checks, self.offsets, store, counters, self._found).take

    @handles(PullMessage)
    def pull(self, request: PullMessage, call: Call) -> Pulled | Awaitable[Pulled]:
        return self._pull(request, call)

    @handles(LitePull)
    def lite_pull(self, request: LitePull, call: Call) -> Pulled | Awaitable[Pulled]:
        return self._pull(request, call)

    def _pull(self, request: Pull, call: Call) -> Pulled | Awaitable[Pulled]:
        group, message_filter = self.checks.admit(request, call.connection)
        queue = self.service.store.components.queues.get(request.topic, request.queue_id)
        if queue is not None and not self.settings.is_slave:
            commit_offset_of(request, queue, self.offsets)
        pull = PullWaiter(call, request, group, message_filter, request.queue_offset, self._resume)
        result = read_cached(self.service.store, self._reading(pull))
        return self._pull_cold(pull) if result is None else self._respond_or_wait(pull, result)

    async def _pull_cold(self, pull: PullWaiter) -> Pulled:
        began = self.clock.monotonic()
        result = await read(self.service, self._reading(pull))
        size = sum(map(len, result.slices))
        waited_s = self.clock.monotonic() - began
        self.writer.counters.read_cold(
            pull.request.topic, pull.request.consumer_group, len(result.slices), size, waited_s
        )
        return self._respond_or_wait(pull, result)

    def _respond_or_wait(self, pull: PullWaiter, result: ReadResult) -> Pulled:
        code = pull_code(result, pull.offset)
        if code is ResponseCode.PULL_NOT_FOUND and self._starts_waiting(pull):
            self._count(pull, result, 0)
            return DEFERRED
        return self._response(pull, code, result)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _starts_waiting(self, pull: PullWaiter) -> bool:
        request = pull.request
        if not request.sys_flag & _SUSPEND or pull.call.command.is_oneway:
            return False
        wait_ms = request.suspend_timeout_millis if self.settings.long_polling else self.settings.short_polling_ms
        return wait_ms > 0 and self.pull_waiters.park(pull, wait_ms / 1000)

    def _resume(self, pull: PullWaiter, final: bool) -> None:
        """A waiting pull reads again. If what arrived does not match, it waits on."""
        try:
            result = read_cached(self.service.store, self._reading(pull))
            if result is None:  # evicted from the page cache: another pull reads it in a thread
                pull.call.respond(self._retry_response(pull))
                return
            code = pull_code(result, pull.offset)
            if not final and code != ResponseCode.SUCCESS and self._waits_on(pull, result):
                return
            pull.call.respond(self._response(pull, code, result))
        except RequestFailed as error:
            pull.call.respond(Response(code=error.code, remark=error.remark))
        except ArianeError as error:
            log.warning("parked pull failed", extra={"peer": pull.call.connection.peer, "reason": str(error)})
            pull.call.respond(Response(code=ResponseCode.SYSTEM_ERROR, remark=str(error)))

    def _waits_on(self, pull: PullWaiter, result: ReadResult) -> bool:
        """Only at the queue's end: elsewhere nothing would wake it."""
        if result.next_offset < result.max_offset or result.next_offset < pull.offset:
            return False
        pull.offset = result.next_offset
        return self.pull_waiters.park_again(pull)

    # --- responses --------------------------------------------------------------------------------------------------

    def _response(self, pull: PullWaiter, code: ResponseCode, result: ReadResult) -> PullResponse | bytes:
        if code is ResponseCode.PULL_OFFSET_MOVED and self.settings.is_slave:
            code, result = moved_at_slave(result, pull.offset, self.settings.replication.offset_check_in_slave)
        elif code is ResponseCode.PULL_OFFSET_MOVED:
            self._report_offset_moved(pull, result)
        broker_id = suggested_broker(result, pull.group, self.settings.slave_read)
        size = sum(map(len, result.slices))
        self._count(pull, result, size)
        frame = self._found.frame(pull.call.command, result, broker_id, size) if code is _SUCCESS else None
        return pull_response(code, result, broker_id) if frame is None else frame

    def _count(self, pull: PullWaiter, result: ReadResult, size: int) -> None:
        request, counters = pull.request, self.writer.counters
        if size:
            messages = len(result.slices)
            counters.got(request.topic, request.consumer_group, request.queue_id, messages, size, result.next_offset)
        else:
            counters.got_nothing(request.topic, request.consumer_group, request.queue_id, result.next_offset)

    def _retry_response(self, pull: PullWaiter) -> PullResponse | bytes:
        queue = self.service.store.components.queues.get(pull.request.topic, pull.request.queue_id)
        result = ReadResult(
            status=ReadStatus.NO_MATCHED_MESSAGE,
            next_offset=pull.offset,
            min_offset=0 if queue is None else queue.min_offset,
            max_offset=0 if queue is None else queue.visible_end,
        )
        return self._response(pull, ResponseCode.PULL_RETRY_IMMEDIATELY, result)

    def _report_offset_moved(self, pull: PullWaiter, result: ReadResult) -> None:
        facts = {
            "group": pull.request.consumer_group,
            "topic": pull.request.topic,
            "queue": pull.request.queue_id,
            "offset": pull.offset,
            "new_offset": result.next_offset,
        }
        subject = pull.request.consumer_group, pull.request.topic
        self._warnings.warning("consumer offset outside its queue: the group is moved", subject, facts)
        event = offset_moved_event(
            pull.request, pull.offset, result, self.settings.name, self.clock.now_ms(), self.store_host
        )
        try:
            self.writer.put(event)
        except StoreError as error:  # the response does not depend on it
            log.warning("offset moved: the event was not stored", extra={"reason": str(error)})

    def _reading(self, pull: PullWaiter) -> Reading:
        return Reading.of(pull.request, pull.offset, pull.filter)
