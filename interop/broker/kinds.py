"""The rows of the table: every feature with its check."""

from collections.abc import Awaitable, Callable

from interop.broker import consuming, operating, sending, transactions
from interop.broker.check_context import CheckContext

Check = Callable[[CheckContext], Awaitable[None]]

KINDS: dict[str, Check] = {
    "send and wait": sending.waits,
    "send with callback": sending.calls_back,
    "send one-way": sending.one_way,
    "compressed body": sending.compressed,
    "batch": sending.batch,
    "ordered": sending.ordered,
    "delay level": sending.delayed,
    "delivery at a time": sending.deliver_at,
    "transaction: commit": transactions.commit,
    "transaction: rollback": transactions.rollback,
    "transaction: check, then commit": transactions.check_commit,
    "transaction: check, then rollback": transactions.check_rollback,
    "tag filter": consuming.tags,
    "SQL92 filter": consuming.sql,
    "broadcast": consuming.broadcast,
    "two members share the queues": consuming.share,
    "retry": consuming.retry,
    "retries end in dead letters": consuming.dead_letter,
    "pull consumer": consuming.pull,
    "lite pull consumer": consuming.poll,
    "request-reply": consuming.request_reply,
    "reset offset, group online": operating.reset_live,
    "reset offset, group offline": operating.reset_offline,
    "query by key": operating.query_by_key,
    "query by offset id": operating.query_by_offset_id,
    "query by unique key": operating.query_by_unique_key,
    "message trace": operating.trace,
}
