"""Transactional messages: a message becomes visible if, and only if, a local transaction of the application succeeds.

    async def pay(message, order): ...            the local transaction; returns COMMIT, ROLLBACK or UNKNOWN
    async def is_paid(message): ...               called when the broker checks a transaction without an outcome

    async with TransactionProducer("127.0.0.1:9876", group="pay", execute=pay, check=is_paid) as producer:
        result = await producer.send_in_transaction("orders", b"...", arg=order)

A half message is stored first, then the local transaction runs, then the broker gets its outcome. After a crash between
two of these steps the broker checks. Functions may be plain or `async`; a plain one runs on the event loop, so it must
be quick.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Unpack

import msgspec

from ariane.client.core.lifecycle import RegisteredProducer
from ariane.client.core.trace_format import transaction_ended
from ariane.client.producer.producer import Producer, message_of
from ariane.client.producer.result import SendResult
from ariane.client.producer.sender import Choice, Sender
from ariane.client.producer.settings import ProducerOptions
from ariane.client.settings import ClientSettings
from ariane.clock import Clock
from ariane.errors import ArianeError, MessageRejected, NoRoute
from ariane.model.message import Message, MessageFields, Property, StoredMessage
from ariane.wire.compression import decompress
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.requests.clients import ProducerData
from ariane.wire.requests.send import CheckTransaction, Decision, EndTransaction
from ariane.wire.sys_flag import SysFlag

log = logging.getLogger(__name__)

COMMIT, ROLLBACK, UNKNOWN = Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN

Execute = Callable[[Message, Any], Decision | Awaitable[Decision | None] | None]
Check = Callable[[StoredMessage], Decision | Awaitable[Decision | None] | None]

_BODY_BYTES_MAX = 16 * 1024 * 1024
_STATE_NAMES = {COMMIT: "COMMIT_MESSAGE", ROLLBACK: "ROLLBACK_MESSAGE", UNKNOWN: "UNKNOW"}  # Apache's spelling


class TransactionResult(msgspec.Struct, frozen=True, kw_only=True):
    sent: SendResult
    """Of the half message."""
    decision: Decision
    error: Exception | None = None
    """What the local transaction raised; then the decision is UNKNOWN, and the broker will check."""


class TransactionProducer(Producer):
    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        group: str,
        check: Check,
        execute: Execute | None = None,
        send_timeout_s: float = 3.0,
        retries: int = 2,
        trace: bool = False,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        **more: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(
            nameservers,
            group=group,
            send_timeout_s=send_timeout_s,
            retries=retries,
            trace=trace,
            settings=settings,
            clock=clock,
            **more,
        )
        self._check = check
        self._execute = execute

    def _registration(self, sender: Sender) -> RegisteredProducer:
        return _TransactionChecker(sender, self._check)

    async def send_in_transaction(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        arg: Any = None,
        execute: Execute | None = None,
        queue: Choice = None,
        timeout_s: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> TransactionResult:
        """Stores the half message, runs the local transaction, sends its outcome to the broker."""
        run = execute or self._execute
        half = message_of(message, body, fields)
        if run is None:
            raise MessageRejected("there is no local transaction: give execute= here or to the producer")
        if half.delay_level or half.deliver_at is not None:
            raise MessageRejected("a transaction cannot be delayed: leave out delay_level and deliver_at")
        sender = self._lifetime.value
        extra = {Property.TRANSACTION_PREPARED: "true", Property.PRODUCER_GROUP: self.settings.group}
        sent = await sender.send(half, queue, timeout_s, extra=extra, sys_flag=int(SysFlag.TRANSACTION_PREPARED))
        if sent.transaction_id is None:  # brokers of 4.x leave it out: it is the unique key
            sent = msgspec.structs.replace(sent, transaction_id=sent.message_id)
        decision, error = (ROLLBACK, None) if not sent.is_ok else await _decide(run, half, arg)
        await _end_transaction(sender, half, sent, decision)
        return TransactionResult(sent=sent, decision=decision, error=error)


class _TransactionChecker:
    """Handles the broker's transaction checks."""

    def __init__(self, sender: Sender, check: Check) -> None:
        self._sender = sender
        self._check = check

    def producer_data(self) -> ProducerData:
        return ProducerData(group_name=self._sender.settings.group)

    async def check_transaction(self, request: CheckTransaction, message: StoredMessage, address: str) -> None:
        body = decompress(message.body, message.sys_flag, _BODY_BYTES_MAX)
        decision, _ = await _decide(self._check, msgspec.structs.replace(message, body=body, sys_flag=0))
        end = EndTransaction(
            producer_group=self._sender.settings.group,
            tran_state_table_offset=request.tran_state_table_offset,
            commit_log_offset=request.commit_log_offset,
            commit_or_rollback=decision,
            msg_id=message.unique_key or request.msg_id or "",
            from_transaction_check=True,
            transaction_id=request.transaction_id,
        )
        await self._sender.instance.oneway(address, end)
        _trace(self._sender, message.topic, message.tags, message.keys, end, address)


async def _decide(function: Callable[..., Any], *arguments: Any) -> tuple[Decision, Exception | None]:
    """The edge of the user's functions: if they raise, the error is logged, and the outcome is unknown."""
    try:
        outcome = function(*arguments)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        return _decision(outcome), None
    except Exception as error:
        log.exception("a transaction function failed: the outcome is unknown, and the broker will check again")
        return UNKNOWN, error


def _decision(outcome: object) -> Decision:
    if outcome is None:
        return UNKNOWN
    if isinstance(outcome, Decision):
        return outcome
    raise TypeError(f"a transaction function returned {outcome!r}: it must return COMMIT, ROLLBACK or UNKNOWN")


async def _end_transaction(sender: Sender, message: Message, sent: SendResult, decision: Decision) -> None:
    """Sends the outcome to the master that has the half message. If that fails, the broker will check."""
    try:
        address = sender.instance.routes.master_of(sent.queue.broker_name)
        if address is None:
            raise NoRoute(f"broker {sent.queue.broker_name} has left all routes")
        end = _end_of(sender.settings.group, sent, decision)
        await sender.instance.oneway(address, end)
        _trace(sender, message.topic, message.tags, message.key_list, end, address)
    except ArianeError as error:
        log.warning(
            "outcome of a transaction not sent; the broker will check it",
            extra={"message": sent.message_id, "decision": decision.name, "reason": str(error)},
        )


def _end_of(group: str, sent: SendResult, decision: Decision) -> EndTransaction:
    return EndTransaction(
        producer_group=group,
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=decode_offset_message_id(sent.offset_message_id).physical_offset,
        commit_or_rollback=decision,
        msg_id=sent.message_id,
        transaction_id=sent.transaction_id,
    )


def _trace(
    sender: Sender, topic: str, tags: str | None, keys: tuple[str, ...], end: EndTransaction, address: str
) -> None:
    if sender.tracer is not None:
        sender.tracer.add(
            transaction_ended(
                timestamp_ms=sender.instance.clock.now_ms(),
                region="DefaultRegion",
                group=end.producer_group,
                topic=topic,
                message_id=end.msg_id,
                tags=tags,
                keys=keys,
                store_host=address,
                transaction_id=end.transaction_id,
                state=_STATE_NAMES[Decision(end.commit_or_rollback)],
                from_check=end.from_transaction_check,
            )
        )
