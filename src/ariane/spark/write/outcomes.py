"""Ends transactions: tells brokers which half messages become visible, many at a time, in the order of the rows.

An outcome may be told twice, by a driver that starts again in the middle. Our brokers deliver once, and after a while
they only know that a transaction is over, not how. So a refusal is looked into: if the real message is there, that is
what was wanted.
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
from ariane.spark.write.half_message import PROPERTY, HalfTag, parse_tag
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


class _Half(NamedTuple):
    broker: str
    attempt: str
    entry: HalfEntry


class Outcomes:
    """`topic` is one that the brokers are known by."""

    def __init__(self, cluster: Cluster, topic: str, group: str, patience_s: float) -> None:
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._patience_s = patience_s

    def commit(self, winners: Iterable[Winners]) -> None:
        """Returns when every broker has taken every outcome; SendFailed names what stands in the way."""
        for window in _windows(winners):
            self._patiently(window)

    def roll_back(self, winners: Iterable[Winners]) -> None:
        """As far as brokers answer: what is left is asked about by them, and parked in the end. Nobody sees it."""
        for window in _windows(winners):
            self._tell(window, Decision.ROLLBACK)

    def _patiently(self, halves: list[_Half]) -> None:
        deadline = monotonic() + self._patience_s
        backoff = Backoff(first_s=0.05, longest_s=2.0)
        while refused := self._tell(halves, Decision.COMMIT):
            halves = [half for half in refused if not self._is_delivered(half)]
            pause_s = backoff.next_s()
            if halves and monotonic() + pause_s > deadline:
                raise _given_up(halves, next(iter(refused.values())), self._patience_s)
            if halves:
                sleep(pause_s)

    def _tell(self, halves: list[_Half], decision: Decision) -> dict[_Half, str]:
        """Those that were not taken, and why."""
        by_broker: dict[str, list[_Half]] = {}
        for half in halves:
            by_broker.setdefault(half.broker, []).append(half)
        refused: dict[_Half, str] = {}
        asks: dict[str, list[EndTransaction]] = {}
        told: dict[str, list[_Half]] = {}
        for broker, some in by_broker.items():
            try:
                address = self._cluster.address(self._topic, broker, master_only=True)
            except NoRoute as error:
                refused.update(dict.fromkeys(some, str(error)))
                continue
            told[address] = some
            asks[address] = [self._end(half, decision) for half in some]
        for address, responses in self._cluster.calls.call_everywhere(asks).items():
            if isinstance(responses, ArianeError):
                refused.update(dict.fromkeys(told[address], str(responses)))
            else:
                refused.update(_refusals(told[address], asks[address], responses))
        if refused:
            self._refresh()
        return refused

    def _end(self, half: _Half, decision: Decision) -> EndTransaction:
        return EndTransaction(
            producer_group=self._group,
            tran_state_table_offset=QueueOffset(half.entry.half_offset),
            commit_log_offset=PhysicalOffset(half.entry.log_offset),
            commit_or_rollback=decision,
            msg_id=f"{half.attempt}-{half.entry.serial}",
        )

    def _refresh(self) -> None:
        try:
            self._cluster.route(self._topic, fresh=True)
        except ArianeError:  # the old route may still hold
            return

    # --- was it delivered before? -----------------------------------------------------------------------------------

    def _is_delivered(self, half: _Half) -> bool:
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
            found = decode_all(self._cluster.calls.call(address, request).body)
        except (ArianeError, KeyError, IndexError):  # not known is not delivered
            return False
        return any(one.topic == topic and one.unique_key == key for one in found)


def _windows(winners: Iterable[Winners]) -> Iterator[list[_Half]]:
    """Some of each broker, so that all of them have work."""
    by_broker: dict[str, list[Winners]] = {}
    for one in winners:
        by_broker.setdefault(one.broker, []).append(one)
    sources = [_halves(some) for some in by_broker.values()]
    while window := [half for source in sources for half in islice(source, _WINDOW)]:
        yield window


def _halves(winners: Iterable[Winners]) -> Iterator[_Half]:
    for one in winners:
        for entry in one.entries():
            yield _Half(one.broker, one.attempt, entry)


def _refusals(halves: list[_Half], asks: list[EndTransaction], responses: list[Command]) -> dict[_Half, str]:
    refused = {}
    for half, request, command in zip(halves, asks, responses, strict=True):
        try:
            if read_response(request, command).code != ResponseCode.SUCCESS:
                refused[half] = command.remark or str(command.code)
        except RequestFailed as error:
            refused[half] = str(error)
    return refused


def _given_up(halves: list[_Half], reason: str, patience_s: float) -> SendFailed:
    return SendFailed(
        f"{len(halves)} half messages on {halves[0].broker} could not be made visible within {patience_s:g} s "
        f"({reason}). The ledger has them: once the broker takes them, the query goes on where it was"
    )


# --- check_answers ---
#
# Answers brokers that ask what became of a half message, from the ledger that the message names.
#
#     its batch is not in the ledger                    not known yet: ask again
#     it is a winner, and the batch is not ended yet    commit
#     anything else                                     rollback
#
# A winner of a batch that is over is a copy that a broker made in between; the message itself has been delivered.
#
# A producer of the query's group lives in a thread of the process that commits. Spark ends that process when there was
# no micro-batch for a minute; the next one, and the next run of any query of the group, answers what is asked again.

_PATIENCE_S = 5.0


class LedgerOutcomes:
    """Threads may share it."""

    def __init__(self, settings: ClientSettings) -> None:
        self._cluster = Cluster(settings)
        self._lock = threading.Lock()
        self._ledgers: dict[str, Ledger] = {}

    def close(self) -> None:
        with self._lock:
            self._cluster.calls.close()

    def decide(self, tag: HalfTag) -> Decision:
        with self._lock:
            ledger = self._ledgers.get(tag.ledger)
            if ledger is None:
                ledger = self._ledgers[tag.ledger] = Ledger(self._cluster, tag.ledger, _PATIENCE_S)
            state = ledger.state(tag.query)
            if not state.is_recorded(tag.batch):
                return Decision.UNKNOWN
            record = state.decided.get(tag.batch)
            if record is None or state.is_ended(tag.batch):
                return Decision.ROLLBACK
            for winners in ledger.winners_of(record):
                if winners.attempt == tag.attempt and any(one.serial == tag.serial for one in winners.entries()):
                    return Decision.COMMIT
            return Decision.ROLLBACK


class CheckResponder:
    """A producer of the group, in a thread, which answers as long as it is open."""

    def __init__(self, options: WriteOptions) -> None:
        self._answers = LedgerOutcomes(options.client_settings())
        self._topics = [topic for topic in (options.topic, options.ledger_topic) if topic is not None]
        self._producer = TransactionProducer(group=options.group, check=self._check, settings=options.client_settings())

    def start(self) -> None:
        SHARED.acquire().run(self._start(), lambda nothing: nothing)

    def close(self) -> None:
        thread = SHARED.thread
        assert thread is not None, "start() took it"
        thread.run(self._producer.close(), lambda nothing: nothing)
        SHARED.release()
        self._answers.close()

    async def _start(self) -> None:
        await self._producer.start()
        for topic in self._topics:
            try:
                await self._producer.queues(topic)  # so that its brokers are known, and get to know us
            except ArianeError:  # they are found with the routes that are looked for every 30 s
                continue

    async def _check(self, message: StoredMessage) -> Decision:
        tag = parse_tag(message.properties.get(PROPERTY, ""))
        return await asyncio.to_thread(self._answers.decide, tag)


def answer_checks(options: WriteOptions) -> None:
    """From now on, as long as this process lives. Costs nothing when called again."""
    _started(options, os.getpid())


@lru_cache(maxsize=16)
def _started(options: WriteOptions, _pid: int) -> CheckResponder:
    """Once in each process: a fork has no thread of its parent's."""
    responses = CheckResponder(options)
    responses.start()
    return responses
