"""Ends transactions: tells brokers which half messages become visible, many at a time, in the order of the rows.

An outcome may be told twice, by a driver that starts again in the middle. Our brokers deliver once, and after a while
they only know that a transaction is over, not how. So a refusal is looked into: if the real message is there, that is
what was wanted.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from time import monotonic, sleep, time
from typing import NamedTuple

from ariane.errors import ArianeError, NoRoute, RequestFailed, SendFailed
from ariane.lifecycle import Backoff
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import Property
from ariane.spark.cluster import Cluster
from ariane.spark.ledger_records import HalfEntry, Winners
from ariane.wire.codes import ResponseCode
from ariane.wire.command import Command
from ariane.wire.exchange import read_answer
from ariane.wire.record_read import decode_all
from ariane.wire.requests.messages import QueryMessages, ViewMessage
from ariane.wire.requests.transactions import Decision, EndTransaction

_WINDOW = 512
_SAME_KEY_MAX = 64
_HOUR_MS = 3_600_000


class _Half(NamedTuple):
    broker: str
    attempt: str
    entry: HalfEntry


class Endings:
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
        for address, answers in self._cluster.calls.call_everywhere(asks).items():
            if isinstance(answers, ArianeError):
                refused.update(dict.fromkeys(told[address], str(answers)))
            else:
                refused.update(_refusals(told[address], asks[address], answers))
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
            ask = QueryMessages(
                topic=topic,
                key=key,
                max_num=_SAME_KEY_MAX,
                begin_timestamp=0,
                end_timestamp=int(time() * 1000) + _HOUR_MS,
                unique_key_query=True,
            )
            found = decode_all(self._cluster.calls.call(address, ask).body)
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


def _refusals(halves: list[_Half], asks: list[EndTransaction], answers: list[Command]) -> dict[_Half, str]:
    refused = {}
    for half, ask, command in zip(halves, asks, answers, strict=True):
        try:
            if read_answer(ask, command).code != ResponseCode.SUCCESS:
                refused[half] = command.remark or str(command.code)
        except RequestFailed as error:
            refused[half] = str(error)
    return refused


def _given_up(halves: list[_Half], reason: str, patience_s: float) -> SendFailed:
    return SendFailed(
        f"{len(halves)} half messages on {halves[0].broker} could not be made visible within {patience_s:g} s "
        f"({reason}). The ledger has them: once the broker takes them, the query goes on where it was"
    )
