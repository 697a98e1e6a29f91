"""Outcomes of transactions, and the administrator's wish to ask about one again.

Apache's broker does not answer an outcome of "unknown". Java sends all outcomes one-way and does not care; C++ clients
send them as requests and would wait until they time out. Here each is answered; what is one-way gets no answer anyway.
"""

import logging
from dataclasses import dataclass

from ariane.broker.intake import Intake
from ariane.broker.put_failures import put_failure
from ariane.broker.transactions.endings import Transactions
from ariane.errors import RequestFailed, StoreError
from ariane.rpc.handlers import Call, handles
from ariane.store.draft import Appended
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.requests.transactions import Decision, EndTransaction, ResumeTransactionChecks

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TransactionHandlers:
    transactions: Transactions
    store: MessageStore
    intake: Intake

    @handles(EndTransaction)
    async def end(self, ask: EndTransaction, call: Call) -> Answer:
        """The outcome is taken before the first await: two of one message cannot overtake each other."""
        try:
            ended = self.transactions.end(ask)
            if ended.writes:
                is_commit = ask.commit_or_rollback == Decision.COMMIT
                self.intake.counters.ended(ended.topic, is_commit=is_commit)
            return Answer() if call.command.is_oneway else await self._answer(ended.writes)
        except (StoreError, RequestFailed) as error:
            failure = error if isinstance(error, RequestFailed) else put_failure(error, self.store)
            self._tell(ask, call, failure)
            raise failure from error

    @handles(ResumeTransactionChecks)
    async def resume(self, ask: ResumeTransactionChecks, call: Call) -> Answer:
        try:
            appended = self.transactions.resume(ask.msg_id or "")
            log.info("transaction opened again", extra={"id": ask.msg_id, "peer": call.connection.peer})
            return await self._answer(() if appended is None else (appended,))
        except StoreError as error:
            raise put_failure(error, self.store) from error

    async def _answer(self, writes: tuple[Appended, ...]) -> Answer:
        """With SYNC_FLUSH only when all of it is durable."""
        code = await self.intake.durable(writes)
        return Answer(code=code, remark=None if code == ResponseCode.SUCCESS else code.name)

    def _tell(self, ask: EndTransaction, call: Call, failure: RequestFailed) -> None:
        """Most producers do not look at the answer: the log is where somebody will."""
        log.warning(
            "outcome of a transaction not taken",
            extra={
                "group": ask.producer_group,
                "decision": ask.commit_or_rollback,
                "after_check": ask.from_transaction_check,
                "id": ask.msg_id,
                "peer": call.connection.peer,
                "reason": failure.remark,
            },
        )
