"""Messages of one task, sent in batches by queue, each acknowledged before the next of its queue leaves.

A round holds at most one request for each queue, all on their way at once. While the brokers store a round the next one
is made; it leaves when the last answer has come. So messages of one queue stay in order even when a request has to be
sent again, all brokers work at a time, and the task works with them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic, sleep

from ariane.errors import ArianeError, NoRoute, SendFailed, TransportError
from ariane.lifecycle import Backoff
from ariane.spark.cluster import Cluster
from ariane.spark.encoded_rows import EncodedRows
from ariane.spark.outgoing import Outgoing
from ariane.spark.parcels import Parcel, Rounds
from ariane.spark.queue_choice import QueueChoice
from ariane.spark.send_answers import accepted
from ariane.spark.write_options import WriteOptions
from ariane.transport.blocking import BlockingConnection
from ariane.wire.requests.send import SendByLetters


@dataclass(slots=True)
class _Posted:
    """Requests of one round that are on their way to one broker."""

    parcels: list[Parcel]
    connection: BlockingConnection
    requests: list[SendByLetters] = field(default_factory=list)
    opaques: list[int] = field(default_factory=list)


class TaskSender:
    def __init__(self, cluster: Cluster, options: WriteOptions, turn: int) -> None:
        """`turn` is where this task begins with the queues, so that tasks do not all begin with the same."""
        self._cluster = cluster
        self._options = options
        self._choice = QueueChoice(cluster, options.patience_s, turn)
        self._rounds = Rounds(options, self._choice)
        self._under_way: list[_Posted] = []
        self._failed: list[Parcel] = []
        self._reasons: list[str] = []
        self.sent = 0

    def send(self, messages: Iterable[Outgoing]) -> None:
        for parcels in self._rounds.of_messages(messages):
            self._next_round(parcels)

    def send_rows(self, topic: str, rows: EncodedRows) -> None:
        for parcels in self._rounds.of_rows(topic, rows):
            self._next_round(parcels)

    def finish(self) -> None:
        """Returns when every message is acknowledged."""
        deadline = monotonic() + self._options.patience_s
        backoff = Backoff(first_s=0.05, longest_s=2.0)
        self._settle()
        while self._failed:
            pause_s = backoff.next_s()
            if monotonic() + pause_s > deadline:
                raise _given_up(self._failed, self._reasons, self._options.patience_s)
            sleep(pause_s)
            self._look_elsewhere()
            again, self._failed = self._failed, []
            self._post(again)
            self._settle()

    # --- rounds -----------------------------------------------------------------------------------------------------

    def _next_round(self, parcels: list[Parcel]) -> None:
        self.finish()
        self._post(parcels)
        self.sent += sum(parcel.count for parcel in parcels)

    def _post(self, parcels: list[Parcel]) -> None:
        by_broker: dict[str, list[Parcel]] = {}
        for parcel in parcels:
            by_broker.setdefault(parcel.queue.broker_name, []).append(parcel)
        self._reasons = []
        for parts in by_broker.values():
            try:
                self._under_way.append(self._posted(parts))
            except (TransportError, NoRoute) as error:
                self._fail(parts, error)

    def _posted(self, parcels: list[Parcel]) -> _Posted:
        queue = parcels[0].queue
        calls = self._cluster.calls
        posted = _Posted(
            parcels, calls.connection(self._cluster.address(queue.topic, queue.broker_name, master_only=True))
        )
        for parcel in parcels:
            request = parcel.request(self._options.group)
            posted.requests.append(request)
            posted.opaques.append(posted.connection.post(calls.command(request)))
        return posted

    def _settle(self) -> None:
        """Takes the answers of the round that is under way. Raises what no other attempt can mend."""
        under_way, self._under_way = self._under_way, []
        for posted in under_way:
            try:
                commands = posted.connection.take(posted.opaques, self._options.send_timeout_ms / 1000)
            except TransportError as error:
                self._fail(posted.parcels, error)
                continue
            for parcel, request, command in zip(posted.parcels, posted.requests, commands, strict=True):
                outcome = accepted(request, command)
                if isinstance(outcome, str):
                    self._fail([parcel], outcome)

    def _fail(self, parcels: list[Parcel], reason: ArianeError | str) -> None:
        self._failed += parcels
        self._reasons.append(f"{parcels[0].queue.broker_name}: {reason}")

    def _look_elsewhere(self) -> None:
        for topic in {parcel.queue.topic for parcel in self._failed}:
            self._choice.refresh(topic)
        for parcel in self._failed:
            if not parcel.fixed:
                parcel.queue = self._choice.next(parcel.queue.topic)


def _given_up(failed: list[Parcel], reasons: list[str], patience_s: float) -> SendFailed:
    count = sum(parcel.count for parcel in failed)
    return SendFailed(
        f"{count} messages for {failed[0].queue.topic} were not acknowledged within {patience_s:g} s "
        f"({'; '.join(dict.fromkeys(reasons))}). Check that the brokers run, or raise brokerWaitSeconds"
    )
