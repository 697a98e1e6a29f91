"""Group commit on the event loop: writes of one loop iteration, of all connections, appended and answered together.

    chunk of connection 1 ─┐                                                     ┌─► one write to connection 1
    chunk of connection 2 ─┼─► enqueue ──(the iteration ends)──► flush: append ──┼─► one write to connection 2
    chunk of connection 3 ─┘                                                     └─► one write to connection 3

An append costs as much as several messages, and so does a write to a socket. Clients with many messages in flight send
dozens at once, so both are shared: 16 connections with 16 messages each pay for one append and 16 writes, and a message
takes two thirds of what it takes with an append for each connection. With SYNC_FLUSH all messages of a connection wait
for one sync in one task.

What is written and what the response says depends on the kind of request, and is the job of a `Sink`: single sends and
batches (send/sinks.py), outcomes of transactions (transactions/outcomes.py). Neighbours of one sink and one key form a
group, which is one append; groups are written in the order of arrival.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ariane.broker.writer import MessageWriter, store_error_response
from ariane.errors import StoreError
from ariane.rpc.failures import failure
from ariane.rpc.handlers import encode_result
from ariane.store.append.draft import Appended
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.frame import Command

Item = TypeVar("Item")
Result = TypeVar("Result")


class Sink(ABC, Generic[Item, Result]):
    """Writes the items of a group, and answers each."""

    bytes_max: int
    """With more bytes enqueued, the iteration does not wait for its end: larger appends are not cheaper."""

    result_types: frozenset[type]
    """The class of each result that is not an error."""

    def __init__(self, writer: MessageWriter) -> None:
        self.writer = writer

    @abstractmethod
    def write(self, key: Any, items: list[Item]) -> Sequence[Result | Exception]:
        """Stores the items; one result or error for each. What it raises is the error of all."""

    @abstractmethod
    def command_of(self, item: Item) -> Command:
        """The request, as far as a response depends on it."""

    @abstractmethod
    def wants_durable(self, item: Item) -> bool:
        """Whether the response waits for a sync where the settings ask for one."""

    @abstractmethod
    def appended(self, result: Result) -> Sequence[Appended]:
        """What a sync must cover; at least one record."""

    @abstractmethod
    def stored(self, stored: Iterable[tuple[Item, Result]]) -> bytes:
        """The responses to what is stored; nothing for one-way requests."""

    @abstractmethod
    def stored_with(self, code: ResponseCode, item: Item, result: Result) -> bytes | None:
        """The response to what is stored, but not synced in time."""

    def failed(self, connection: Connection, item: Item, error: Exception) -> bytes | None:
        """The response to what is not stored."""
        if isinstance(error, StoreError):
            error = store_error_response(error, self.writer.store)
            self.writer.counters.rejected(error)
        command = self.command_of(item)
        return encode_result(command, failure(connection, command, error))


class _Group:
    """Items that are written by one append."""

    __slots__ = ("items", "key", "senders", "sink")

    def __init__(self, sink: Sink[Any, Any], key: Hashable) -> None:
        self.sink = sink
        self.key = key
        self.items: list[Any] = []
        self.senders: list[tuple[Connection, int]] = []
        """Connections in the order of the items, each with the number of the item behind its own."""

    def write(self) -> Sequence[Any]:
        try:
            return self.sink.write(self.key, self.items)
        except Exception as error:  # senders get it as a response, as from the dispatcher
            return [error] * len(self.items)


class Coalescer:
    """For the event loop alone."""

    def __init__(self, writer: MessageWriter, *, before_others: bool = True) -> None:
        """`before_others`: whatever else goes to the log waits for what is enqueued here, so the log keeps the order of
        arrival."""
        self._writer = writer
        self._before_others = before_others
        self._groups: list[_Group] = []
        self._bytes = 0

    def enqueue(
        self, sink: Sink[Item, Any], key: Hashable, connection: Connection, items: list[Item], size: int
    ) -> None:
        """Items of one connection, in its order, of `size` bytes together. Batches of one key share an append."""
        groups = self._groups
        if not groups:
            if self._before_others:
                self._writer.flush_first(self.flush)
            asyncio.get_running_loop().call_soon(self._flush, True)
            group = _Group(sink, key)
            groups.append(group)
        else:
            group = groups[-1]
            if group.sink is not sink or group.key != key:
                group = _Group(sink, key)
                groups.append(group)
        group.items += items
        senders = group.senders
        if senders and senders[-1][0] is connection:
            senders[-1] = connection, len(group.items)
        else:
            senders.append((connection, len(group.items)))
        self._bytes += size
        if self._bytes >= sink.bytes_max:
            self.flush()

    def flush(self) -> None:
        """Stores all that is enqueued, and answers what need not wait for a sync. Does nothing when nothing is."""
        self._flush(False)

    def _flush(self, is_last: bool) -> None:
        """`is_last`: the event-loop iteration ends, and what it brought may share a sync on the loop."""
        groups = self._groups
        if not groups:
            return
        self._groups, self._bytes = [], 0
        written = [(group, group.write()) for group in groups]
        is_safe = not self._writer.must_wait or (is_last and self._sync_here(groups))
        responses: dict[Connection, list[bytes]] = {}
        waiting: list[_Waiting] = []
        for group, results in written:
            # One look at all of them: a check for each message and whether it must wait would take 0.2 us a message.
            are_done = is_safe and set(map(type, results)) == group.sink.result_types
            first = 0
            for connection, last in group.senders:
                pairs = zip(group.items[first:last], results[first:last], strict=True)
                if are_done:
                    data = group.sink.stored(pairs)
                else:
                    data, unsafe = _split(group.sink, connection, pairs, is_safe=is_safe)
                    if unsafe:
                        waiting.append((group.sink, connection, unsafe))
                responses.setdefault(connection, []).append(data)
                first = last
        for connection, parts in responses.items():
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            if data:
                connection.write(data)
        if waiting:
            self._wait(waiting)

    def _sync_here(self, groups: list[_Group]) -> bool:
        """Whether all is durable, by a sync on the loop that a sender wants and that is short."""
        wants_durable = any(group.sink.wants_durable(item) for group in groups for item in group.items)
        return wants_durable and self._writer.sync_here(sum(len(group.items) for group in groups))

    def _wait(self, waiting: "list[_Waiting]") -> None:
        """One callback for all connections, where a task for each would cost as much as several messages."""
        for connection in {connection for _, connection, _ in waiting}:
            connection.hold_request()
        messages = sum(len(sink.appended(result)) for sink, _, pairs in waiting for _, result in pairs)
        self._writer.when_settled(messages, partial(_answer, waiting))


_Waiting = tuple[Sink[Any, Any], Connection, list[tuple[Any, Any]]]
"""Items of one connection that are stored and wait for a sync or a slave, with their results."""


def _split(
    sink: Sink[Any, Any], connection: Connection, pairs: Iterable[tuple[Any, Any]], *, is_safe: bool
) -> tuple[bytes, list[tuple[Any, Any]]]:
    """The responses that need not wait, and what has to wait for a sync."""
    errors: list[bytes | None] = []
    stored: list[tuple[Any, Any]] = []
    waiting: list[tuple[Any, Any]] = []
    for item, result in pairs:
        if isinstance(result, Exception):
            errors.append(sink.failed(connection, item, result))
        elif is_safe or not sink.wants_durable(item):
            stored.append((item, result))
        else:
            waiting.append((item, result))
    return _joined(errors) + sink.stored(stored), waiting


def _answer(waiting: list[_Waiting], outcome: ResponseCode | StoreError) -> None:
    responses: dict[Connection, list[bytes]] = {}
    for sink, connection, pairs in waiting:
        if outcome is ResponseCode.SUCCESS:
            data = sink.stored(pairs)
        elif isinstance(outcome, StoreError):
            data = _joined(sink.failed(connection, item, outcome) for item, _ in pairs)
        else:
            data = _joined(sink.stored_with(outcome, item, result) for item, result in pairs)
        responses.setdefault(connection, []).append(data)
    for connection, parts in responses.items():
        connection.finish_request(parts[0] if len(parts) == 1 else b"".join(parts))


def _joined(responses: Iterable[bytes | None]) -> bytes:
    """Without those of one-way requests."""
    return b"".join(filter(None, responses))
