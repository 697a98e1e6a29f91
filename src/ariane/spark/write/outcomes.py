"""Ends the transactions of the exactly-once sink, and answers the check requests of brokers from the ledger.

Transactions are ended many at a time, in the order of the rows. An outcome may be sent twice, by a driver that was
restarted in between. An Ariane broker delivers the message once; after a while it only knows that a transaction is
over, not how. So when a broker rejects a commit, look for the message itself: if it is there, the commit succeeded.

A check request asks for the outcome of a half message. The ledger that the message names has it:

    its batch is not in the ledger                    unknown: the broker asks again
    it is a winner, and the batch is not ended yet    commit
    anything else                                     rollback

A winner of a batch that is over is a copy that a broker made in between; the message itself has been delivered.

The producer that receives check requests runs in a thread of the process that commits. Spark ends that process after a
minute without a micro-batch. The next one, and the next run of any query of the group, answers when brokers ask again.
"""

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from time import monotonic, sleep, time
from typing import NamedTuple

from ariane.client.loop_thread import SHARED
from ariane.client.producer.transactional import TransactionProducer
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError, NoRoute, RequestFailed, SendFailed
from ariane.lifecycle import Backoff
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import Property, StoredMessage
from ariane.spark.cluster import Cluster
from ariane.spark.options.write import WriteOptions
from ariane.spark.write.half_message import PROPERTY, HalfMessageOrigin, parse_origin
from ariane.spark.write.ledger import HalfEntry, Ledger, Winners
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import read_response
from ariane.wire.frame import Command
from ariane.wire.record.read import decode_all
from ariane.wire.requests.messages import QueryMessages, ViewMessage
from ariane.wire.requests.send import Decision, EndTransaction

_WINDOW = 512
_SAME_KEY_MAX = 64
_HOUR_MS = 3_600_000


class _HalfMessage(NamedTuple):
    broker: str
    attempt: str
    entry: HalfEntry


class Outcomes:
    """`topic` is one whose route has the brokers."""

    def __init__(self, cluster: Cluster, topic: str, group: str, patience_s: float) -> None:
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._patience_s = patience_s

    def commit(self, winners: Iterable[Winners]) -> None:
        """Returns when the brokers have committed all; SendFailed with the reason if they do not in time."""
        for window in _windows(winners):
            self._commit_window(window)

    def roll_back(self, winners: Iterable[Winners]) -> None:
        """Best effort: brokers check the rest later and park it in the end. It stays invisible."""
        for window in _windows(winners):
            self._end(window, Decision.ROLLBACK)

    def _commit_window(self, pending: list[_HalfMessage]) -> None:
        deadline = monotonic() + self._patience_s
        backoff = Backoff(first_s=0.05, longest_s=2.0)
        while rejected := self._end(pending, Decision.COMMIT):
            pending = [half for half in rejected if not self._is_delivered(half)]
            pause_s = backoff.next_s()
            if pending and monotonic() + pause_s > deadline:
                raise _not_committed(pending, next(iter(rejected.values())), self._patience_s)
            if pending:
                sleep(pause_s)

    def _end(self, messages: list[_HalfMessage], decision: Decision) -> dict[_HalfMessage, str]:
        """Sends the outcome of each; returns those that were not accepted, and why."""
        by_broker: dict[str, list[_HalfMessage]] = {}
        for half in messages:
            by_broker.setdefault(half.broker, []).append(half)
        rejected: dict[_HalfMessage, str] = {}
        requests: dict[str, list[EndTransaction]] = {}
        by_address: dict[str, list[_HalfMessage]] = {}
        for broker, some in by_broker.items():
            try:
                address = self._cluster.address(self._topic, broker, master_only=True)
            except NoRoute as error:
                rejected.update(dict.fromkeys(some, str(error)))
                continue
            by_address[address] = some
            requests[address] = [self._request(half, decision) for half in some]
        for address, responses in self._cluster.calls.call_everywhere(requests).items():
            if isinstance(responses, ArianeError):
                rejected.update(dict.fromkeys(by_address[address], str(responses)))
            else:
                rejected.update(_rejections(by_address[address], requests[address], responses))
        if rejected:
            self._refresh_route()
        return rejected

    def _request(self, half: _HalfMessage, decision: Decision) -> EndTransaction:
        return EndTransaction(
            producer_group=self._group,
            tran_state_table_offset=QueueOffset(half.entry.half_offset),
            commit_log_offset=PhysicalOffset(half.entry.log_offset),
            commit_or_rollback=decision,
            msg_id=f"{half.attempt}-{half.entry.serial}",
        )

    def _refresh_route(self) -> None:
        try:
            self._cluster.route(self._topic, fresh=True)
        except ArianeError:  # the old route may still hold
            return

    def _is_delivered(self, half: _HalfMessage) -> bool:
        """Whether the message of this half message is in its topic, by its unique key."""
        try:
            address = self._cluster.address(self._topic, half.broker, master_only=True)
            view = self._cluster.calls.call(address, ViewMessage(PhysicalOffset(half.entry.log_offset)))
            properties = decode_all(view.body)[0].properties
            key, topic = properties[Property.UNIQUE_KEY], properties[Property.REAL_TOPIC]
            request = QueryMessages(
                topic=topic,
                key=key,
                max_num=_SAME_KEY_MAX,
                begin_timestamp=0,
                end_timestamp=int(time() * 1000) + _HOUR_MS,
                unique_key_query=True,
            )
            messages = decode_all(self._cluster.calls.call(address, request).body)
        except (ArianeError, KeyError, IndexError):  # unknown counts as not delivered
            return False
        return any(message.topic == topic and message.unique_key == key for message in messages)


def _windows(winners: Iterable[Winners]) -> Iterator[list[_HalfMessage]]:
    """Some of each broker, so that all of them have work."""
    by_broker: dict[str, list[Winners]] = {}
    for some in winners:
        by_broker.setdefault(some.broker, []).append(some)
    sources = [_half_messages(of_broker) for of_broker in by_broker.values()]
    while window := [half for source in sources for half in islice(source, _WINDOW)]:
        yield window


def _half_messages(winners: Iterable[Winners]) -> Iterator[_HalfMessage]:
    for some in winners:
        for entry in some.entries():
            yield _HalfMessage(some.broker, some.attempt, entry)


def _rejections(
    messages: list[_HalfMessage], requests: list[EndTransaction], responses: list[Command]
) -> dict[_HalfMessage, str]:
    rejected = {}
    for half, request, command in zip(messages, requests, responses, strict=True):
        try:
            if read_response(request, command).code != ResponseCode.SUCCESS:
                rejected[half] = command.remark or str(command.code)
        except RequestFailed as error:
            rejected[half] = str(error)
    return rejected


def _not_committed(messages: list[_HalfMessage], reason: str, patience_s: float) -> SendFailed:
    return SendFailed(
        f"{len(messages)} half messages on {messages[0].broker} could not be committed within {patience_s:g} s "
        f"({reason}). The ledger has them: once the broker accepts them, the query continues where it was"
    )


# --- check requests of brokers ---

_PATIENCE_S = 5.0


class LedgerOutcomes:
    """Outcomes from the ledgers. Thread-safe."""

    def __init__(self, settings: ClientSettings) -> None:
        self._cluster = Cluster(settings)
        self._lock = threading.Lock()
        self._ledgers: dict[str, Ledger] = {}

    def close(self) -> None:
        with self._lock:
            self._cluster.calls.close()

    def decide(self, origin: HalfMessageOrigin) -> Decision:
        with self._lock:
            ledger = self._ledgers.get(origin.ledger)
            if ledger is None:
                ledger = self._ledgers[origin.ledger] = Ledger(self._cluster, origin.ledger, _PATIENCE_S)
            state = ledger.state(origin.query)
            if not state.is_recorded(origin.batch):
                return Decision.UNKNOWN
            record = state.decided.get(origin.batch)
            if record is None or state.is_ended(origin.batch):
                return Decision.ROLLBACK
            for winners in ledger.winners_of(record):
                if winners.attempt == origin.attempt and any(
                    entry.serial == origin.serial for entry in winners.entries()
                ):
                    return Decision.COMMIT
            return Decision.ROLLBACK


class CheckResponder:
    """A producer of the group, in a thread, which answers check requests as long as it is open."""

    def __init__(self, options: WriteOptions) -> None:
        self._outcomes = LedgerOutcomes(options.client_settings())
        self._topics = [topic for topic in (options.topic, options.ledger_topic) if topic is not None]
        self._producer = TransactionProducer(group=options.group, check=self._check, settings=options.client_settings())

    def start(self) -> None:
        SHARED.acquire().run(self._start(), lambda nothing: nothing)

    def close(self) -> None:
        thread = SHARED.thread
        assert thread is not None, "start() acquired it"
        thread.run(self._producer.close(), lambda nothing: nothing)
        SHARED.release()
        self._outcomes.close()

    async def _start(self) -> None:
        await self._producer.start()
        for topic in self._topics:
            try:
                await self._producer.queues(topic)  # connects to its brokers, which need a heartbeat from us
            except ArianeError:  # found again when routes are refreshed, every 30 s
                continue

    async def _check(self, message: StoredMessage) -> Decision:
        origin = parse_origin(message.properties.get(PROPERTY, ""))
        return await asyncio.to_thread(self._outcomes.decide, origin)


def answer_checks(options: WriteOptions) -> None:
    """Starts a responder for the rest of this process's life, unless it is running."""
    _started(options, os.getpid())


@lru_cache(maxsize=16)
def _started(options: WriteOptions, _pid: int) -> CheckResponder:
    """Once in each process: a forked process does not have the threads of its parent."""
    responder = CheckResponder(options)
    responder.start()
    return responder
