"""What producers and consumers are to the client instance that they share: named by group, asked for by brokers."""

import logging
from collections.abc import Mapping
from typing import Protocol

from ariane.errors import ClientError
from ariane.model.message import StoredMessage
from ariane.model.route import MessageQueue
from ariane.wire.requests.clients import ConsumerData, ProducerData
from ariane.wire.requests.connections import ConsumeResult, ConsumerRunningInfo
from ariane.wire.requests.transactions import CheckTransaction

log = logging.getLogger(__name__)


class ProducerPart(Protocol):
    def producer_data(self) -> ProducerData: ...

    async def check_transaction(self, ask: CheckTransaction, message: StoredMessage, address: str) -> None:
        """Find out what became of a half message and tell the broker at `address`."""


class ConsumerPart(Protocol):
    def consumer_data(self) -> ConsumerData: ...

    def rebalance_soon(self) -> None: ...

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...

    def status(self, topic: str) -> Mapping[MessageQueue, int]: ...

    def running_info(self) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> ConsumeResult: ...


class Parts:
    """The producers and consumers of one instance, by group."""

    def __init__(self) -> None:
        self.producers: dict[str, ProducerPart] = {}
        self.consumers: dict[str, ConsumerPart] = {}

    def add_producer(self, group: str, part: ProducerPart) -> None:
        if self.producers.setdefault(group, part) is not part:
            raise ClientError(f"this client already has a producer of group {group}: use that one, or another group")

    def add_consumer(self, group: str, part: ConsumerPart) -> None:
        if self.consumers.setdefault(group, part) is not part:
            raise ClientError(
                f"this client already has a consumer of group {group}: two with one client id would share no queues; "
                "open another client"
            )

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self.consumers


class PlainProducer:
    """A producer without transactions."""

    def __init__(self, group: str) -> None:
        self._group = group

    def producer_data(self) -> ProducerData:
        return ProducerData(group_name=self._group)

    async def check_transaction(self, ask: CheckTransaction, message: StoredMessage, address: str) -> None:
        """Somebody else of this group sends transactions. The broker asks again, and so finds the right one in time."""
        log.warning(
            "cannot answer for a transaction: this producer of the group makes none",
            extra={"group": self._group, "broker": address, "message": message.unique_key},
        )
