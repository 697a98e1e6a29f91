"""Handlers of transactions: outcomes, and half messages that an administrator wants to be asked about again.

Most outcomes do not come here: they take the fast path from the bytes of a chunk (fast_path.py). Both enqueue them for
the same appends (outcomes.py).
"""

import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field

from ariane.broker.acl.rights import RightsOf, all_rights
from ariane.broker.transactions.fast_path import OutcomeFastPath
from ariane.broker.transactions.outcomes import OutcomeSink, Transactions
from ariane.broker.writer import MessageWriter, store_error_response
from ariane.errors import RequestFailed, StoreError
from ariane.rpc.handlers import DEFERRED, Call, Deferred, GroupFastPath, handles
from ariane.store.blocking_io import run_in_executor
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode
from ariane.wire.fast.fields import opaque_of
from ariane.wire.fields import Response
from ariane.wire.frame import FrameLimits
from ariane.wire.requests.send import EndTransaction, ResumeTransactionChecks

log = logging.getLogger(__name__)


@dataclass
class TransactionHandlers:
    transactions: Transactions
    store: MessageStore
    writer: MessageWriter
    rights_of: RightsOf = all_rights
    limits: FrameLimits = FrameLimits()
    _outcomes: OutcomeSink = field(init=False)
    fast_path: GroupFastPath = field(init=False)

    def __post_init__(self) -> None:
        self._outcomes = OutcomeSink(self.transactions, self.writer)
        self.fast_path = OutcomeFastPath(self.transactions, self._outcomes, self.limits).take

    @handles(EndTransaction)
    def end(self, request: EndTransaction, call: Call) -> Response | Deferred | Awaitable[Response | Deferred]:
        record = self.transactions.queue.fresh_at(request.tran_state_table_offset)
        return self._end_old(request, call) if record is None else self._end(request, call, record)

    async def _end_old(self, request: EndTransaction, call: Call) -> Response | Deferred:
        """The producer took its time, or answers a check request: a thread fetches the half message if need be."""
        record = await run_in_executor(self.transactions.queue.finding(request.tran_state_table_offset))
        return self._end(request, call, record)

    def _end(self, request: EndTransaction, call: Call, record: memoryview | None) -> Response | Deferred:
        opaque = None if call.command.is_oneway else opaque_of(call.command)
        try:
            is_enqueued = self._outcomes.enqueue(request, call.connection, opaque, record, self.rights_of(call))
        except RequestFailed as error:
            self._outcomes.log_refused(request, call.connection, error.remark)
            raise
        return DEFERRED if is_enqueued else Response()

    @handles(ResumeTransactionChecks)
    async def resume(self, request: ResumeTransactionChecks, call: Call) -> Response:
        try:
            message = await run_in_executor(self.transactions.given_up(request.msg_id or ""))
            appended = self.transactions.resume(message)
            log.info("transaction opened again", extra={"id": request.msg_id, "peer": call.connection.peer})
            code = await self.writer.settled(() if appended is None else appended)
        except StoreError as error:
            raise store_error_response(error, self.store) from error
        return Response(code=code, remark=None if code == ResponseCode.SUCCESS else code.name)
