"""The ledger's topic, made when it is missing: one queue, on the first broker of the topic that is written to."""

from ariane.errors import NoRoute, RequestFailed, SettingsError
from ariane.model.route import MASTER_ID
from ariane.spark.cluster import Cluster
from ariane.spark.ledger import Ledger
from ariane.spark.new_topic import make_topic, route_to_write
from ariane.spark.write_options import WriteOptions
from ariane.wire.requests.routes import GetCluster


def open_ledger(cluster: Cluster, options: WriteOptions) -> Ledger:
    """Made if it does not exist; SettingsError when we may not make it. Refuses one that has several queues."""
    topic = options.ledger_topic
    cluster.patiently(lambda: _ensure(cluster, options), options.patience_s, topic)
    ledger = Ledger(cluster, topic, options.patience_s)
    ledger.queue()
    return ledger


def _ensure(cluster: Cluster, options: WriteOptions) -> None:
    """NoRoute, which is retried, until the nameserver knows what was just made."""
    try:
        cluster.route(options.ledger_topic)
    except NoRoute:
        _make(cluster, options)
        cluster.route(options.ledger_topic)


def _make(cluster: Cluster, options: WriteOptions) -> None:
    address = _home(cluster, options.topic)
    try:
        make_topic(cluster, address, options.ledger_topic, queues=1)
    except RequestFailed as error:
        raise SettingsError(
            f"the ledger topic {options.ledger_topic} cannot be made at {address} ({error}): let an administrator "
            "create it, with one queue on one broker"
        ) from error


def _home(cluster: Cluster, topic: str | None) -> str:
    if topic is not None:
        brokers = route_to_write(cluster, topic).broker_datas
    else:
        brokers = list(cluster.ask_nameserver(GetCluster()).body.broker_addr_table.values())
    for broker in sorted(brokers, key=lambda one: one.broker_name):
        if MASTER_ID in broker.broker_addrs:
            return broker.broker_addrs[MASTER_ID]
    raise NoRoute("no master is there for the ledger topic: start one")
