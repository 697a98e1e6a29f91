"""What a broker says when it registers, what it is told, and whether its topic table is news. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ariane.model.route import MASTER_ID
from ariane.model.topic import DataVersion, TopicConfig
from ariane.nameserver.live_brokers import LiveBroker

EXPIRY_SECONDS = 120.0  # Apache's, four registration periods
NO_VERSION = DataVersion()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What one broker process says of itself. `topics` and `filter_servers` are None when the request had no body."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    connection: object
    ha_address: str = ""
    data_version: DataVersion = NO_VERSION
    topics: Mapping[str, TopicConfig] | None = None
    filter_servers: Sequence[str] | None = None
    expiry_seconds: float = EXPIRY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterResult:
    """The answer to a broker, and what its registration did to others."""

    is_first: bool
    master_address: str | None = None  # told to slaves only
    ha_address: str | None = None
    refused_topics: Mapping[str, str] = field(default_factory=dict)  # name to reason
    displaced: tuple[LiveBroker, ...] = ()  # two processes that claim one id push each other out: worth a warning


def is_first(ask: Registration, known: LiveBroker | None) -> bool:
    """Whether this address takes this place for the first time; `known` is what it was under the same broker name."""
    return known is None or known.broker_id != ask.broker_id


def topics_to_take(ask: Registration, known: LiveBroker | None) -> Mapping[str, TopicConfig] | None:
    """The topic table, if it is a master's and may hold something that we have not taken.

    A new topic is announced alone, under the new data version. The whole table that follows carries that same version;
    were it skipped, a nameserver that started in between would know this one topic only. So more topics than we took
    under a version are news too.
    """
    if ask.broker_id != MASTER_ID or ask.topics is None:
        return None
    if known is None or is_first(ask, known) or known.data_version != ask.data_version:
        return ask.topics
    return ask.topics if len(ask.topics) > known.topics_taken else None


def live_broker(ask: Registration, known: LiveBroker | None, now: float) -> LiveBroker:
    """The broker as it now stands. What a request without a body does not say is kept."""
    filters = known.filter_servers if known and ask.filter_servers is None else tuple(ask.filter_servers or ())
    topics = topics_to_take(ask, known)
    kept = known.topics_taken if known else 0
    return LiveBroker(
        cluster=ask.cluster,
        broker_name=ask.broker_name,
        broker_id=ask.broker_id,
        address=ask.address,
        ha_address=ask.ha_address,
        data_version=ask.data_version,
        topics_taken=kept if topics is None else len(topics),
        filter_servers=filters,
        connection=ask.connection,
        last_seen=now,
        expiry_seconds=ask.expiry_seconds,
    )
