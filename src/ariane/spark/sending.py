"""Messages of one task, sent in batches by queue, each acknowledged before the next of its queue leaves.

A round holds at most one request for each queue, all on their way at once; the next round waits for the last answer.
So messages of one queue stay in order even when a request has to be sent again, and all brokers work at a time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic, sleep, time

from ariane.client.selection import by_sharding_key, publish_queues
from ariane.errors import ArianeError, MessageRejected, NoRoute, RequestFailed, SendFailed, TransportError
from ariane.lifecycle import Backoff
from ariane.model.route import MessageQueue
from ariane.model.topic import AUTO_CREATE_TEMPLATE
from ariane.spark.cluster import Cluster
from ariane.spark.outgoing import Outgoing
from ariane.spark.write_options import WriteOptions
from ariane.wire.batch import BatchItem, encode_batch
from ariane.wire.codes import ResponseCode
from ariane.wire.command import Command
from ariane.wire.exchange import read_answer
from ariane.wire.requests.send import SendBatch, SendByLetters, SendMessageV2

_ROUND_BYTES_MAX = 8 * 1024 * 1024
# Another broker, or the same one later, may well say yes; anything else is for a person to look at.
_RETRY_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)


@dataclass(slots=True)
class _Parcel:
    """Messages for one queue. `fixed` when they may go to no other."""

    queue: MessageQueue
    fixed: bool
    messages: list[Outgoing] = field(default_factory=list)
    size: int = 0


class TaskSender:
    def __init__(self, cluster: Cluster, options: WriteOptions, turn: int) -> None:
        """`turn` is where this task begins with the queues, so that tasks do not all begin with the same."""
        self._cluster = cluster
        self._options = options
        self._turn = turn
        self._queues: dict[str, list[MessageQueue]] = {}
        self.sent = 0

    def send(self, messages: Iterable[Outgoing]) -> None:
        """Returns when every message is acknowledged."""
        for parcels in self._rounds(messages):
            self._deliver(parcels)
            self.sent += sum(len(parcel.messages) for parcel in parcels)

    # --- rounds -----------------------------------------------------------------------------------------------------

    def _rounds(self, messages: Iterable[Outgoing]) -> Iterator[list[_Parcel]]:
        """A round ends when a message does not fit the parcel of its queue any more."""
        open_parcels: dict[MessageQueue, _Parcel] = {}
        size = 0
        for message in messages:
            queue, fixed = self._choose(message, open_parcels)
            parcel = open_parcels.get(queue)
            if (parcel is not None and not self._fits(parcel, message, fixed)) or size > _ROUND_BYTES_MAX:
                yield list(open_parcels.values())
                open_parcels, size, parcel = {}, 0, None
            if parcel is None:
                parcel = open_parcels[queue] = _Parcel(queue, fixed)
            parcel.messages.append(message)
            parcel.size += message.size
            size += message.size
        if open_parcels:
            yield list(open_parcels.values())

    def _fits(self, parcel: _Parcel, message: Outgoing, fixed: bool) -> bool:
        return (
            parcel.fixed == fixed
            and not message.travels_alone
            and not parcel.messages[0].travels_alone
            and len(parcel.messages) < self._options.batch_count
            and parcel.size + message.size <= self._options.batch_bytes
        )

    def _choose(self, message: Outgoing, open_parcels: dict[MessageQueue, _Parcel]) -> tuple[MessageQueue, bool]:
        queues = self._queues_of(message.topic)
        if message.queue_id is not None:
            return self._named(message, queues), True
        if message.sharding_key is not None:
            return by_sharding_key(queues, message.sharding_key), True
        queue = queues[self._turn % len(queues)]
        parcel = open_parcels.get(queue)
        if parcel is not None and not self._fits(parcel, message, fixed=False):
            self._turn += 1  # the next queue in turn, and a new round when every queue has its parcel
            queue = queues[self._turn % len(queues)]
        return queue, False

    def _named(self, message: Outgoing, queues: list[MessageQueue]) -> MessageQueue:
        found = [
            queue
            for queue in queues
            if queue.queue_id == message.queue_id and message.broker_name in (None, queue.broker_name)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(queue.broker_name for queue in found)
            raise MessageRejected(
                f"queue {message.queue_id} of topic {message.topic} is on several brokers ({names}): add a column "
                "brokerName, or use shardingKey"
            )
        raise MessageRejected(f"topic {message.topic} has no queue {message.queue_id} that takes messages")

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = self._cluster.patiently(
                lambda: publish_queues(topic, self._cluster.route(topic)), self._options.patience_s, topic
            )
        if not queues:
            raise NoRoute(f"topic {topic} has no queue that takes messages: give it permission 6, or start its masters")
        return queues

    # --- delivery ---------------------------------------------------------------------------------------------------

    def _deliver(self, parcels: list[_Parcel]) -> None:
        """All of them; those that fail are sent again, elsewhere if they may, until time is up."""
        deadline = monotonic() + self._options.patience_s
        backoff = Backoff(first_s=0.05, longest_s=2.0)
        while parcels:
            failed, reasons = self._attempt(parcels)
            if failed:
                pause_s = backoff.next_s()
                if monotonic() + pause_s > deadline:
                    raise _given_up(failed, reasons, self._options.patience_s)
                sleep(pause_s)
                self._look_elsewhere(failed)
            parcels = failed

    def _attempt(self, parcels: list[_Parcel]) -> tuple[list[_Parcel], list[str]]:
        by_broker: dict[str, list[_Parcel]] = {}
        for parcel in parcels:
            by_broker.setdefault(parcel.queue.broker_name, []).append(parcel)
        failed: list[_Parcel] = []
        reasons: list[str] = []
        for broker, parts in by_broker.items():
            try:
                answers = self._ask(parts)
            except (TransportError, NoRoute) as error:
                failed += parts
                reasons.append(f"{broker}: {error}")
                continue
            for parcel, refusal in zip(parts, answers, strict=True):
                if refusal is not None:
                    failed.append(parcel)
                    reasons.append(f"{broker}: {refusal}")
        return failed, reasons

    def _ask(self, parcels: list[_Parcel]) -> list[str | None]:
        """For each parcel why it must be sent again, or None. Raises what no other attempt can mend."""
        queue = parcels[0].queue
        address = self._cluster.address(queue.topic, queue.broker_name, master_only=True)
        requests = [self._request(parcel) for parcel in parcels]
        commands = self._cluster.calls.call_all(address, requests, self._options.send_timeout_ms / 1000)
        refusals: list[str | None] = []
        for request, command in zip(requests, commands, strict=True):
            refusals.append(_refusal(request, command))
        return refusals

    def _request(self, parcel: _Parcel) -> SendByLetters:
        first = parcel.messages[0]
        is_single = len(parcel.messages) == 1
        kind = SendMessageV2 if is_single else SendBatch
        return kind(
            producer_group=self._options.group,
            topic=parcel.queue.topic,
            default_topic=AUTO_CREATE_TEMPLATE,
            default_topic_queue_nums=4,
            queue_id=parcel.queue.queue_id,
            sys_flag=0,
            born_timestamp=int(time() * 1000),
            flag=0,
            properties=first.properties.decode() if is_single else "WAIT\x01true\x02",
            reconsume_times=0,
            unit_mode=False,
            batch=not is_single,
            body=first.body
            if is_single
            else encode_batch(BatchItem(one.body, one.properties) for one in parcel.messages),
        )

    def _look_elsewhere(self, parcels: list[_Parcel]) -> None:
        for parcel in parcels:
            topic = parcel.queue.topic
            try:
                queues = publish_queues(topic, self._cluster.route(topic, fresh=True))
            except ArianeError:  # the next attempt tells what is wrong, or the old route still holds
                continue
            if queues and not parcel.fixed:
                self._turn += 1
                parcel.queue = queues[self._turn % len(queues)]


def _refusal(request: SendByLetters, command: Command) -> str | None:
    try:
        answer = read_answer(request, command)
    except RequestFailed as error:
        if error.code == ResponseCode.MESSAGE_ILLEGAL:
            raise MessageRejected(f"the broker refuses a message for topic {request.topic}: {error.remark}") from error
        if error.code not in _RETRY_CODES and not error.retriable:
            raise
        return str(error)
    # Stored, though not as safely as the broker was set up to: not an acknowledgement.
    return None if answer.code == ResponseCode.SUCCESS else f"{ResponseCode(answer.code).name}: {answer.remark}"


def _given_up(failed: list[_Parcel], reasons: list[str], patience_s: float) -> SendFailed:
    count = sum(len(parcel.messages) for parcel in failed)
    return SendFailed(
        f"{count} messages for {failed[0].queue.topic} were not acknowledged within {patience_s:g} s "
        f"({'; '.join(dict.fromkeys(reasons))}). Check that the brokers run, or raise brokerWaitSeconds"
    )
