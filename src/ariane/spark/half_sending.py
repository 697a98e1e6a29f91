"""Half messages of one attempt: stored by brokers, and seen by nobody until their transaction is ended.

Brokers take half messages one by one, so many are on their way at a time. Their order does not matter: that of the real
messages is the order in which transactions are ended.
"""

from collections.abc import Iterable
from itertools import islice
from time import monotonic, sleep, time
from typing import NamedTuple

from ariane.errors import ArianeError, NoRoute, SendFailed
from ariane.lifecycle import Backoff
from ariane.model.message import Property
from ariane.model.route import MessageQueue
from ariane.model.topic import AUTO_CREATE_TEMPLATE
from ariane.spark.cluster import Cluster
from ariane.spark.half_tags import PROPERTY, HalfTag
from ariane.spark.ledger_records import HalfEntry, Winners, pack
from ariane.spark.outgoing import Outgoing
from ariane.spark.queue_choice import QueueChoice
from ariane.spark.send_answers import accepted
from ariane.spark.write_options import WriteOptions
from ariane.wire.command import Command
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.properties import encode_properties
from ariane.wire.requests.send import SendAnswer, SendMessageV2
from ariane.wire.sys_flag import SysFlag

_WINDOW = 256
_WINDOW_BYTES = 4 * 1024 * 1024


class _Ask(NamedTuple):
    number: int
    """Of the message, in its window."""
    serial: int
    broker: str
    request: SendMessageV2


class HalfSender:
    def __init__(self, cluster: Cluster, options: WriteOptions, tag: HalfTag) -> None:
        self._cluster = cluster
        self._options = options
        self._tag = tag
        self._serial = 0
        self._choice = QueueChoice(cluster, options.patience_s, tag.partition)
        self._entries: dict[str, list[HalfEntry]] = {}
        more = {
            Property.TRANSACTION_PREPARED: "true",
            Property.PRODUCER_GROUP: options.group,
            Property.CHECK_IMMUNITY_TIME_IN_SECONDS: str(options.transaction_timeout_s),
        }
        self._more = encode_properties(more).decode()

    def send(self, messages: Iterable[Outgoing]) -> None:
        """Returns when every one is acknowledged."""
        source = iter(messages)
        while window := _take(source):
            self._deliver(window)

    def winners(self) -> list[Winners]:
        """All that was acknowledged so far."""
        tag = self._tag
        return [
            piece
            for broker, entries in self._entries.items()
            for piece in pack(tag.attempt, tag.partition, broker, entries)
        ]

    def _deliver(self, window: list[Outgoing]) -> None:
        deadline = monotonic() + self._options.patience_s
        backoff = Backoff(first_s=0.05, longest_s=2.0)
        done: dict[int, tuple[str, HalfEntry]] = {}
        while len(done) < len(window):
            reasons = self._attempt(window, done)
            if reasons:
                pause_s = backoff.next_s()
                if monotonic() + pause_s > deadline:
                    raise _given_up(len(window) - len(done), window[0].topic, reasons, self._options.patience_s)
                sleep(pause_s)
                for topic in {message.topic for message in window}:
                    self._choice.refresh(topic)
        for _, (broker, entry) in sorted(done.items()):
            self._entries.setdefault(broker, []).append(entry)

    def _attempt(self, window: list[Outgoing], done: dict[int, tuple[str, HalfEntry]]) -> list[str]:
        """Sends what is not done, to all brokers at once; why some of it has to be sent again."""
        asks: dict[str, list[_Ask]] = {}
        for number, message in enumerate(window):
            if number not in done:
                one = self._ask(number, message)
                asks.setdefault(one.broker, []).append(one)
        reasons = []
        for broker, answers in self._answers(asks).items():
            if isinstance(answers, ArianeError):
                reasons.append(f"{broker}: {answers}")
                continue
            for one, command in zip(asks[broker], answers, strict=True):
                outcome = accepted(one.request, command)
                if isinstance(outcome, str):
                    reasons.append(f"{broker}: {outcome}")
                else:
                    done[one.number] = broker, _entry(one.serial, outcome)
        return reasons

    def _answers(self, asks: dict[str, list["_Ask"]]) -> dict[str, list[Command] | ArianeError]:
        outcomes: dict[str, list[Command] | ArianeError] = {}
        addresses: dict[str, str] = {}
        for broker, parts in asks.items():
            try:
                addresses[self._cluster.address(parts[0].request.topic, broker, master_only=True)] = broker
            except NoRoute as error:
                outcomes[broker] = error
        requests = {address: [one.request for one in asks[broker]] for address, broker in addresses.items()}
        found = self._cluster.calls.call_everywhere(requests, self._options.send_timeout_ms / 1000)
        return outcomes | {addresses[address]: outcome for address, outcome in found.items()}

    def _ask(self, number: int, message: Outgoing) -> "_Ask":
        queue = self._choice.fixed(message) or self._choice.next(message.topic)
        request = self._request(message, queue)
        self._serial += 1
        return _Ask(number, self._serial - 1, queue.broker_name, request)

    def _request(self, message: Outgoing, queue: MessageQueue) -> SendMessageV2:
        tag = f"{PROPERTY}\x01{self._tag.prefix}{self._serial}\x02"
        return SendMessageV2(
            producer_group=self._options.group,
            topic=message.topic,
            default_topic=AUTO_CREATE_TEMPLATE,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=int(SysFlag.TRANSACTION_PREPARED),
            born_timestamp=int(time() * 1000),
            flag=0,
            properties=f"{message.properties.decode()}{self._more}{tag}",
            reconsume_times=0,
            body=message.body,
        )


def _take(messages: Iterable[Outgoing]) -> list[Outgoing]:
    window: list[Outgoing] = []
    size = 0
    for message in islice(messages, _WINDOW):
        window.append(message)
        size += message.size
        if size > _WINDOW_BYTES:
            break
    return window


def _entry(serial: int, answer: SendAnswer) -> HalfEntry:
    return HalfEntry(serial, answer.queue_offset, decode_offset_message_id(answer.msg_id).physical_offset)


def _given_up(count: int, topic: str, reasons: list[str], patience_s: float) -> SendFailed:
    return SendFailed(
        f"{count} half messages for {topic} were not acknowledged within {patience_s:g} s "
        f"({'; '.join(dict.fromkeys(reasons))}). Check that the brokers run, or raise brokerWaitSeconds"
    )
