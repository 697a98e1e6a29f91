"""Options of `df.write` and `df.writeStream`."""

import re
from dataclasses import dataclass
from enum import StrEnum

from ariane.errors import SettingsError
from ariane.model.ids import group_name_problem, topic_name_problem
from ariane.settings import setting
from ariane.spark.options.connection import ConnectionOptions

_TRANSACTION_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


class Delivery(StrEnum):
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(ConnectionOptions):
    topic: str | None = setting(None, key="topic", doc="The topic of rows that have none in a column `topic`.")
    group: str = setting("ariane-spark", key=("producerGroup", "group"), doc="The producer group.")
    delivery: Delivery = setting(
        Delivery.AT_LEAST_ONCE,
        key="delivery",
        doc="at-least-once: a task that Spark repeats sends its messages again, under the same unique keys. "
        "exactly-once: with transactions and a ledger.",
    )
    batch_count: int = setting(
        500, key="sendBatchSize", minimum=1, maximum=500, doc="The most messages in one request."
    )
    batch_bytes: int = setting(
        1024 * 1024, key="sendBatchBytes", minimum=1024, maximum=4 * 1024 * 1024, doc="The most bytes in one request."
    )
    send_timeout_ms: int = setting(
        10_000, key="sendTimeout", minimum=100, maximum=600_000, doc="Time for the response to one request, in ms."
    )

    ledger_topic: str = setting(
        "SPARK_LEDGER",
        key="ledgerTopic",
        doc="exactly-once: the topic that records which micro-batches were written. One queue; created if missing.",
    )
    transaction_id: str | None = setting(
        None,
        key="transactionId",
        doc="exactly-once, batch: a name for this write. Repeated under the same name, it sends nothing again.",
    )
    transaction_timeout_s: int = setting(
        86_400,
        key="transactionTimeoutSeconds",
        minimum=1,
        maximum=7 * 86_400,
        doc="exactly-once: how long brokers wait before they check an open transaction. Longer than a micro-batch "
        "takes, and than a driver may be down in the middle of one.",
    )

    def __post_init__(self) -> None:
        for name, topic in (("topic", self.topic), ("ledgerTopic", self.ledger_topic)):
            fault = None if topic is None else topic_name_problem(topic)
            if fault is not None:
                raise SettingsError(f"option {name}: {fault}")
        fault = group_name_problem(self.group)
        if fault is not None:
            raise SettingsError(f"option producerGroup: {fault}")
        self._check_transaction_id()

    def _check_transaction_id(self) -> None:
        if self.transaction_id is None:
            return
        if self.delivery is not Delivery.EXACTLY_ONCE:
            raise SettingsError("option transactionId needs delivery=exactly-once: add it, or leave transactionId out")
        if not _TRANSACTION_ID.fullmatch(self.transaction_id):
            raise SettingsError(
                f"option transactionId is {self.transaction_id[:80]!r}: letters, digits, '.', '_' and '-', at most 100"
            )
