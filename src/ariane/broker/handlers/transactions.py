"""Outcomes of transactions, and the administrator's wish to ask about one again.

Apache's broker does not answer an outcome of "unknown". Java sends all outcomes one-way and does not care; C++ clients
send them as requests and would wait until they time out. Here each is answered; what is one-way gets no answer anyway.
"""

import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field

from ariane.broker.intake import Intake
from ariane.broker.put_failures import put_failure
from ariane.broker.transactions.endings import Transactions
from ariane.broker.transactions.staged_endings import EndingStage, tell_refused
from ariane.errors import RequestFailed, StoreError
from ariane.rpc.handlers import LATER, Call, Later, handles
from ariane.store.message_store import MessageStore
from ariane.store.steps import off_the_loop
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.requests.transactions import EndTransaction, ResumeTransactionChecks

log = logging.getLogger(__name__)


@dataclass
class TransactionHandlers:
    transactions: Transactions
    store: MessageStore
    intake: Intake
    _stage: EndingStage = field(init=False)

    def __post_init__(self) -> None:
        self._stage = EndingStage(self.transactions, self.store, self.intake)

    @handles(EndTransaction)
    def end(self, ask: EndTransaction, call: Call) -> Answer | Later | Awaitable[Answer | Later]:
        record = self.transactions.queue.fresh_at(ask.tran_state_table_offset)
        return self._end_old(ask, call) if record is None else self._end(ask, call, record)

    async def _end_old(self, ask: EndTransaction, call: Call) -> Answer | Later:
        """The producer took its time, or answers a question: a thread fetches the half message if need be."""
        record = await off_the_loop(self.transactions.queue.finding(ask.tran_state_table_offset))
        return self._end(ask, call, record)

    def _end(self, ask: EndTransaction, call: Call, record: memoryview | None) -> Answer | Later:
        try:
            return LATER if self._stage.add(ask, call, record) else Answer()
        except RequestFailed as refused:
            tell_refused(ask, call, refused.remark)
            raise

    @handles(ResumeTransactionChecks)
    async def resume(self, ask: ResumeTransactionChecks, call: Call) -> Answer:
        try:
            message = await off_the_loop(self.transactions.given_up(ask.msg_id or ""))
            appended = self.transactions.resume(message)
            log.info("transaction opened again", extra={"id": ask.msg_id, "peer": call.connection.peer})
            code = await self.intake.durable(() if appended is None else appended)
        except StoreError as error:
            raise put_failure(error, self.store) from error
        return Answer(code=code, remark=None if code == ResponseCode.SUCCESS else code.name)
