"""What `df.write` and `df.writeStream` can be told."""

from dataclasses import dataclass
from enum import StrEnum

from ariane.errors import SettingsError
from ariane.model.ids import topic_fault
from ariane.settings import setting
from ariane.spark.connection_options import ConnectionOptions


class Delivery(StrEnum):
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(ConnectionOptions):
    topic: str | None = setting(
        None, key="topic", doc="Where rows go that have no topic of their own, in a column `topic`."
    )
    group: str = setting("ariane-spark", key=("producerGroup", "group"), doc="The producer group brokers are told.")
    delivery: Delivery = setting(
        Delivery.AT_LEAST_ONCE,
        key="delivery",
        doc="at-least-once: a task that Spark repeats sends its messages again, under the same unique keys.",
    )
    batch_count: int = setting(
        500, key="sendBatchSize", minimum=1, maximum=500, doc="Most messages that travel in one request."
    )
    batch_bytes: int = setting(
        1024 * 1024, key="sendBatchBytes", minimum=1024, maximum=4 * 1024 * 1024, doc="Most bytes in one request."
    )
    send_timeout_ms: int = setting(
        10_000, key="sendTimeout", minimum=100, maximum=600_000, doc="Time for the answer to one request."
    )

    def __post_init__(self) -> None:
        if self.delivery is Delivery.EXACTLY_ONCE:
            raise SettingsError(
                "delivery=exactly-once does not exist yet: use at-least-once, where a repeated message has the unique "
                "key of the first, by which its consumers can tell"
            )
        fault = None if self.topic is None else topic_fault(self.topic)
        if fault is not None:
            raise SettingsError(f"option topic: {fault}")
