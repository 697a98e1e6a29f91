"""Which broker processes live: when each was last heard, and over which connection. Pure: time is an argument."""

from dataclasses import dataclass, replace

from ariane.model.topic import DataVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """One broker process as it last registered. Its address is its identity."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    data_version: DataVersion
    topics_taken: int  # the size of the topic table we last took from it, to tell a whole table from an increment
    filter_servers: tuple[str, ...]
    connection: object
    last_seen: float
    expiry_seconds: float

    def is_silent(self, now: float) -> bool:
        return now - self.last_seen > self.expiry_seconds


class LiveBrokers:
    """Live brokers by address, and the addresses that registered over each connection.

    The second table makes a closed connection cheap to judge: most of them belong to clients and name no broker. A
    connection is any hashable token; it is compared and never called.
    """

    def __init__(self) -> None:
        self._by_address: dict[str, LiveBroker] = {}
        self._addresses_on: dict[object, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._by_address)

    def get(self, address: str) -> LiveBroker | None:
        return self._by_address.get(address)

    def put(self, broker: LiveBroker) -> None:
        """Add a broker or renew it. A new connection takes the old one's place, so the old one may close unnoticed."""
        known = self._by_address.get(broker.address)
        if known is not None:
            self._forget_connection(known)
        self._by_address[broker.address] = broker
        self._addresses_on.setdefault(broker.connection, {})[broker.address] = None

    def remove(self, address: str) -> LiveBroker | None:
        broker = self._by_address.pop(address, None)
        if broker is not None:
            self._forget_connection(broker)
        return broker

    def touch(self, address: str, now: float) -> bool:
        """Note a sign of life; False when nobody registered from `address`."""
        broker = self._by_address.get(address)
        if broker is not None:
            self._by_address[address] = replace(broker, last_seen=now)
        return broker is not None

    def on_connection(self, connection: object) -> list[LiveBroker]:
        return [self._by_address[address] for address in self._addresses_on.get(connection, ())]

    def silent(self, now: float) -> list[LiveBroker]:
        return [broker for broker in self._by_address.values() if broker.is_silent(now)]

    def _forget_connection(self, broker: LiveBroker) -> None:
        addresses = self._addresses_on[broker.connection]
        del addresses[broker.address]
        if not addresses:
            del self._addresses_on[broker.connection]
