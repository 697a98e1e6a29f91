"""A route table with shortcuts for its tests."""

from collections.abc import Sequence

from ariane.model.route import TopicRoute
from ariane.model.topic import DataVersion, TopicConfig
from ariane.nameserver.route_table import LiveBroker, RegisterResult, Registration, RouteTable

MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"
OTHER = "10.0.0.3:10911"


class ShortcutTable(RouteTable):
    def register_broker(
        self,
        address: str = MASTER,
        *topics: TopicConfig | str,
        name: str = "broker-a",
        broker_id: int = 0,
        cluster: str = "blue",
        version: int = 1,
        body: bool = True,
        filters: Sequence[str] | None = (),
        connection: object = None,
        now: float = 0.0,
        expiry_seconds: float = 120.0,
    ) -> RegisterResult:
        configs = [TopicConfig(topic_name=topic) if isinstance(topic, str) else topic for topic in topics]
        request = Registration(
            cluster=cluster,
            broker_name=name,
            broker_id=broker_id,
            address=address,
            ha_address=address.replace("10911", "10912"),
            data_version=DataVersion(timestamp=1_700_000_000_000, counter=version) if body else DataVersion(),
            topics={config.topic_name: config for config in configs} if body else None,
            filter_servers=filters if body else None,
            connection=connection if connection is not None else f"connection of {address}",
            expiry_seconds=expiry_seconds,
        )
        return self.register(request, now)

    def existing_route(self, topic: str) -> TopicRoute:
        route = self.route(topic)
        assert route is not None
        return route

    def addresses(self, name: str = "broker-a") -> dict[int, str]:
        data = self.cluster_map().broker_addr_table.get(name)
        return {} if data is None else data.broker_addrs

    def permission(self, topic: str) -> int:
        return self.existing_route(topic).queue_datas[0].perm


def addresses_of(brokers: list[LiveBroker]) -> list[str]:
    return [broker.address for broker in brokers]
