"""Topic routes: which brokers have queues of a topic, and the addresses of those brokers."""

import msgspec
from msgspec.structs import force_setattr

MASTER_ID = 0


class MessageQueue(msgspec.Struct, frozen=True, kw_only=True, order=True, rename="camel"):
    """One queue of one topic on one broker."""

    topic: str
    broker_name: str
    queue_id: int


class QueueData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of queues of a topic on one broker, and their permissions."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0
    topic_syn_flag: int | None = None
    """The name of `topic_sys_flag` in releases before 4.9; merged into that field on construction."""

    def __post_init__(self) -> None:
        if self.topic_syn_flag is not None:
            force_setattr(self, "topic_sys_flag", self.topic_sys_flag or self.topic_syn_flag)
            force_setattr(self, "topic_syn_flag", None)


class BrokerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The addresses of one broker name: id 0 is the master, all others are slaves."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]


class TopicRoute(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The route of one topic: its queues by broker, and the addresses of the brokers."""

    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None


class ClusterMap(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All brokers, and which cluster each belongs to."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}
