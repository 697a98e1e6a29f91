"""The cluster as drivers and tasks see it: routes from the nameservers, queue ends and group offsets from brokers."""

import difflib
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from time import monotonic, sleep
from typing import NamedTuple, TypeVar

from ariane.client.queue_ends import readable_queues
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError, NoRoute, RequestFailed, TransportError
from ariane.lifecycle import Backoff
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX, QueueOffset
from ariane.model.route import MASTER_ID, MessageQueue, TopicRoute
from ariane.spark.calls import Calls
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer, Request
from ariane.wire.requests.offsets import GetAllConsumerOffsets, GetConsumerOffset, SearchOffset, UpdateConsumerOffset
from ariane.wire.requests.routes import GetCluster, GetRoute
from ariane.wire.requests.topics import GetTopicStats, ListTopics

A = TypeVar("A", bound=Answer)
T = TypeVar("T")


class Ends(NamedTuple):
    """The first offset that is still there, and the one that the next message will get."""

    first: int
    next: int


@lru_cache(maxsize=16)
def cluster_for(settings: ClientSettings) -> "Cluster":
    """Workers of Spark live on from task to task, and so do their connections."""
    return Cluster(settings)


class Cluster:
    def __init__(self, settings: ClientSettings) -> None:
        self.calls = Calls(settings)
        self._nameservers = list(settings.nameserver_list)
        self._timeout_s = settings.nameserver_timeout_s
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}

    # --- nameservers ------------------------------------------------------------------------------------------------

    def ask_nameserver(self, request: Request[A]) -> A:
        silent = []
        for address in list(self._nameservers):
            try:
                return self.calls.call(address, request, self._timeout_s)
            except TransportError as error:
                silent.append(str(error))
                self._nameservers.append(self._nameservers.pop(0))
        raise NoRoute(
            f"no nameserver answers ({'; '.join(silent)}): start one, for example with `ariane up`, or correct "
            "the option nameServer"
        )

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """What was known stays known when the nameserver has forgotten it: it may have just started."""
        if fresh or topic not in self._routes:
            try:
                route = self.ask_nameserver(GetRoute(topic, accept_standard_json_only=True)).body
            except RequestFailed as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                if topic not in self._routes:
                    raise self._no_route(topic) from None
            else:
                self._routes[topic] = route
                self._brokers.update({data.broker_name: data.broker_addrs for data in route.broker_datas})
        return self._routes[topic]

    def _no_route(self, topic: str) -> NoRoute:
        try:
            similar = difflib.get_close_matches(topic, self.ask_nameserver(ListTopics()).body.topic_list, n=3)
        except ArianeError:  # only a hint is lost
            similar = []
        hint = f"; similar topics: {', '.join(similar)}" if similar else ""
        return NoRoute(
            f"no route for topic {topic} at {self.calls.settings.nameservers}: create it, or correct the option "
            f"topic{hint}"
        )

    def topics_matching(self, pattern: re.Pattern[str]) -> list[str]:
        """Retry and dead letter topics only when the pattern names them: nobody means them by `.*`."""
        names = self.ask_nameserver(ListTopics()).body.topic_list
        special = () if "%" in pattern.pattern else (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        return sorted(name for name in names if pattern.fullmatch(name) and not name.startswith(special))

    def queues(self, topics: Iterable[str], *, fresh: bool = False) -> list[MessageQueue]:
        return [queue for topic in topics for queue in readable_queues(topic, self.route(topic, fresh=fresh))]

    def address(self, topic: str, broker_name: str, *, master_only: bool = False) -> str:
        if broker_name not in self._brokers:
            self.route(topic, fresh=True)
        if broker_name not in self._brokers:  # of another topic, as a ledger's record may name it
            self._learn_brokers()
        addresses = self._brokers.get(broker_name, {})
        found = addresses.get(MASTER_ID)
        if found is None and addresses and not master_only:
            found = next(iter(addresses.values()))
        if found is None:
            raise NoRoute(f"no address is known for broker {broker_name} of topic {topic}: start it, or wait for it")
        return found

    def _learn_brokers(self) -> None:
        for name, data in self.ask_nameserver(GetCluster()).body.broker_addr_table.items():
            self._brokers.setdefault(name, data.broker_addrs)

    # --- brokers ----------------------------------------------------------------------------------------------------

    def ends(self, topic: str, broker_name: str) -> dict[MessageQueue, Ends]:
        """Of all queues that `topic` has on one broker, in one call."""
        answer = self.calls.call(self.address(topic, broker_name), GetTopicStats(topic))
        return {
            MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue.queue_id): Ends(
                max(0, offsets.min_offset), max(0, offsets.max_offset)
            )
            for queue, offsets in answer.body.offset_table.items()
        }

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message that was not stored before this time (Apache's 4.x: the nearest)."""
        ask = SearchOffset(queue.topic, queue.queue_id, timestamp_ms)
        return self.calls.call(self.address(queue.topic, queue.broker_name), ask).offset

    def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """None when the group has none. Apache's 4.x then says 0 for a queue that is young, so 0 is looked into."""
        address = self.address(queue.topic, queue.broker_name)
        ask = GetConsumerOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
        try:
            offset = self.calls.call(address, ask).offset
        except RequestFailed as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        return None if offset < 0 or (offset == 0 and not self._has_offset(address, group, queue)) else offset

    def _has_offset(self, address: str, group: str, queue: MessageQueue) -> bool:
        """A broker that does not let us look is believed: starting at 0 repeats messages, and loses none."""
        try:
            table = self.calls.call(address, GetAllConsumerOffsets()).body.offset_table
        except RequestFailed:
            return True
        return queue.queue_id in table.get(f"{queue.topic}@{group}", {})

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        ask = UpdateConsumerOffset(group, queue.topic, queue.queue_id, QueueOffset(offset))
        self.calls.call(self.address(queue.topic, queue.broker_name, master_only=True), ask)

    # --- patience ---------------------------------------------------------------------------------------------------

    def patiently(self, action: Callable[[], T], patience_s: float, topic: str) -> T:
        """Again, with growing pauses and fresh routes, while the cluster cannot be reached and time is left."""
        deadline = monotonic() + patience_s
        backoff = Backoff(first_s=0.05, longest_s=2.0)
        while True:
            try:
                return action()
            except ArianeError as error:
                pause_s = backoff.next_s()
                if not error.retriable or monotonic() + pause_s > deadline:
                    raise
            sleep(pause_s)
            try:
                self.route(topic, fresh=True)
            except ArianeError:  # the next attempt tells what is wrong, or the old route still holds
                continue
