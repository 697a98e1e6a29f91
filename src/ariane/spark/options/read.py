"""Options of `spark.read` and `spark.readStream`. Their aliases are the names in Apache's or Kafka's connectors."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from ariane.errors import SettingsError
from ariane.settings import setting
from ariane.spark.offsets import Offsets, Position, from_nested
from ariane.spark.options.connection import ConnectionOptions

_NAMES = re.compile(r"[,;\s]+")


class ReadMode(StrEnum):
    AUTO = "auto"
    BROKER = "broker"
    STORE = "store"
    ARCHIVE = "archive"


class BodyFormat(StrEnum):
    RAW = "raw"
    JSON = "json"


class BadBodies(StrEnum):
    """How bodies that do not fit the schema are handled, by Spark's names."""

    KEEP = "PERMISSIVE"
    DROP = "DROPMALFORMED"
    FAIL = "FAILFAST"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(ConnectionOptions):
    # --- source
    topic: str | None = setting(None, key=("topic", "topics", "subscribe"), doc="One topic, or several with commas.")
    topic_pattern: str | None = setting(
        None, key=("topicPattern", "subscribePattern"), doc="A regular expression that whole topic names must match."
    )
    queues: str | None = setting(None, key="queues", doc='Only these queues: {"orders": {"broker-a": [0, 1]}}.')
    mode: ReadMode = setting(
        ReadMode.AUTO,
        key="readMode",
        doc="broker: pull from brokers. store: read a store directory. archive: read what the job archive wrote. auto: "
        "store when storePath is given, archive when archivePath is.",
    )
    archive_path: str | None = setting(
        None, key="archivePath", doc="An archive that every executor can read: see *Archive and replay*."
    )
    store_path: str | None = setting(
        None, key=("storePath", "path"), doc="A store directory that every executor can read, or a glob of several."
    )
    live: bool | None = setting(
        None,
        key="storeIsLive",
        doc="store: whether a broker writes there. Then the log is read as far as it is indexed. Default: by its lock.",
    )
    broker_name: str | None = setting(
        None, key="brokerName", doc="store: the value of the column brokerName, which is not in the store."
    )
    # --- start and end
    starting: str = setting(
        "", key="startingOffsets", doc="earliest, latest or JSON. Default: earliest for batch, latest for streams."
    )
    ending: str = setting(
        "latest", key="endingOffsets", doc="Batch only: latest, or JSON with the first offset not to read."
    )
    starting_timestamp: str | None = setting(
        None, key="startingTimestamp", doc="Messages stored at this time or later: ms since 1970, or ISO 8601."
    )
    ending_timestamp: str | None = setting(None, key="endingTimestamp", doc="Messages stored before this time.")
    as_of: str | None = setting(
        None, key="asOfTimestamp", doc="The topic as it was at this time: messages up to and including it."
    )
    # --- filters
    tags: str | None = setting(None, key=("tags", "subExpression"), doc="Tags, as in a subscription: A || B.")
    sql_filter: str | None = setting(
        None, key="sqlFilter", doc="A SQL92 expression over properties, evaluated by brokers."
    )
    keys: str | None = setting(None, key="keys", doc="Messages with any of these keys, separated by commas.")
    # --- consumer group
    group: str | None = setting(
        None,
        key=("consumerGroup", "group"),
        doc="Streams: the group whose offsets show the progress, and keep the start of a stream from latest.",
    )
    # --- limits
    offsets_per_trigger: int | None = setting(
        None, key="maxOffsetsPerTrigger", minimum=1, doc="The most messages in a micro-batch, over all queues."
    )
    bytes_per_trigger: int | None = setting(
        None, key="maxBytesPerTrigger", minimum=1, doc="The most bytes in a micro-batch, by the mean size of messages."
    )
    offsets_per_trigger_min: int | None = setting(
        None,
        key="minOffsetsPerTrigger",
        minimum=1,
        doc="Wait for this many messages, but no longer than maxTriggerDelay.",
    )
    trigger_delay: str = setting("15m", key="maxTriggerDelay", doc="A duration such as 500ms, 30s, 15m or 1h.")
    partitions_min: int | None = setting(
        None,
        key="minPartitions",
        minimum=1,
        maximum=100_000,
        doc="The least number of partitions, if there are messages.",
    )
    records_per_partition: int | None = setting(
        None, key="maxRecordsPerPartition", minimum=1, doc="The most messages in one partition."
    )
    bytes_per_partition: int | None = setting(
        None,
        key="maxBytesPerPartition",
        minimum=1,
        doc="The most bytes in one partition: estimated for brokers, exact for a store (128 MiB).",
    )
    pull_count: int = setting(
        256,
        key="pullBatchSize",
        minimum=1,
        maximum=1024,
        doc="The most messages of one pull. A broker returns 32 unless maxTransferCountOnMessageInMemory is set.",
    )
    pull_timeout_ms: int = setting(
        10_000, key="pullTimeout", minimum=100, maximum=600_000, doc="Time for the response to one pull, in ms."
    )
    route_refresh_s: float = setting(
        10.0, key="routeRefreshSeconds", minimum=0.05, maximum=3600, doc="Streams: how often new queues are looked for."
    )
    # --- rows
    fail_on_data_loss: bool = setting(
        True,
        key="failOnDataLoss",
        doc="Whether messages that are gone, or damaged, stop the query. false: they are left out, with a warning.",
    )
    columns: str | None = setting(None, key="columns", doc="The columns to read, separated by commas.")
    include_properties: bool = setting(
        False, key=("includeProperties", "includeHeaders"), doc="Whether there is a column `properties`, a map."
    )
    format: BodyFormat = setting(
        BodyFormat.RAW, key="format", doc="json: bodies become the columns of the schema given with .schema(...)."
    )
    infer_schema: bool = setting(
        False,
        key="inferSchema",
        doc="json: without .schema(...), take the fields from a sample of the newest messages.",
    )
    sampling_size: int = setting(
        1000, key="samplingSize", minimum=1, maximum=1_000_000, doc="json: how many messages inferSchema looks at."
    )
    bad_bodies: BadBodies | None = setting(
        None,
        key="mode",
        doc="json: how bodies that do not fit are handled. PERMISSIVE: a row with the text in the column below. "
        "DROPMALFORMED: no row, and a warning that counts them. FAILFAST: the query stops. Unless given: PERMISSIVE if "
        "the schema has that column, else FAILFAST.",
    )
    bad_record_column: str = setting(
        "_corrupt_record",
        key="columnNameOfCorruptRecord",
        doc="json: the column, if the schema has it, for bodies that do not fit it. Without it they are errors.",
    )
    bad_records_path: str | None = setting(
        None,
        key="badRecordsPath",
        doc="A directory of Parquet files for bodies that do not fit, and for damaged records: their position, "
        "their content, and the reason. They do not become rows, and do not stop the query.",
    )
    pushdown: bool = setting(
        False,
        key="pushdown",
        doc="Whether conditions of the query are pushed to the source. Off, because Spark 4.3 keeps them for later "
        "queries on the same data frame.",
    )

    def __post_init__(self) -> None:
        if sum(choice is not None for choice in (self.topic, self.topic_pattern, self.queues)) != 1 and not (
            (self.reads_store or self.reads_archive) and self.topic is None
        ):
            raise SettingsError("give exactly one of the options topic, topicPattern and queues")
        if self.mode is ReadMode.STORE and self.store_path is None:
            raise SettingsError("readMode=store needs the option storePath: the store directory of a broker")
        if self.mode is ReadMode.ARCHIVE and self.archive_path is None:
            raise SettingsError("readMode=archive needs the option archivePath: the directory of an archive")
        if self.archive_path is not None and (self.store_path is not None or not self.reads_archive):
            raise SettingsError(
                "archivePath is for readMode=archive: leave it out, or leave out the options that contradict it"
            )
        if self.mode is ReadMode.BROKER and self.store_path is not None:
            raise SettingsError("storePath is for readMode=store or auto: leave it out, or change readMode")
        if self.tags is not None and self.sql_filter is not None:
            raise SettingsError("tags and sqlFilter are both given: brokers take one; put TAGS into the SQL expression")
        if self.sql_filter is not None and (self.reads_store or self.reads_archive):
            raise SettingsError(
                "sqlFilter is evaluated by brokers: with a store or an archive use .where(...) on the data frame"
            )
        if self.as_of is not None and self.ending_timestamp is not None:
            raise SettingsError("asOfTimestamp and endingTimestamp both say where to end: leave one out")
        if self.starting and self.starting_timestamp is not None:
            raise SettingsError("startingOffsets and startingTimestamp both say where to start: leave one out")
        if self.bad_bodies is not None and self.bad_records_path is not None:
            raise SettingsError("mode and badRecordsPath both say how bad records are handled: leave one out")
        if self.format is not BodyFormat.JSON and (self.infer_schema or self.bad_bodies is not None):
            raise SettingsError("inferSchema and mode are for bodies that are JSON: add format=json, or leave them out")
        self.time_range()
        delay_s(self.trigger_delay)

    @property
    def reads_store(self) -> bool:
        return self.mode is ReadMode.STORE or (self.mode is ReadMode.AUTO and self.store_path is not None)

    @property
    def reads_archive(self) -> bool:
        return self.mode is ReadMode.ARCHIVE or (self.mode is ReadMode.AUTO and self.archive_path is not None)

    @property
    def topics(self) -> list[str]:
        return _words(self.topic)

    @property
    def key_list(self) -> list[str]:
        return _words(self.keys)

    @property
    def column_list(self) -> list[str] | None:
        return _words(self.columns) or None

    @property
    def tag_list(self) -> list[str] | None:
        """None for every tag."""
        tags = [tag.strip() for tag in (self.tags or "*").split("||")]
        return None if "*" in tags else [tag for tag in tags if tag]

    def assigned(self) -> Offsets:
        """The queues of the option `queues`; the offsets have no meaning."""
        import json

        try:
            selected = json.loads(self.queues or "{}")
            nested = {
                topic: {name: dict.fromkeys(map(str, ids), 0) for name, ids in brokers.items()}
                for topic, brokers in selected.items()
            }
        except (ValueError, AttributeError, TypeError):
            raise SettingsError('option queues must look like {"orders": {"broker-a": [0, 1]}}') from None
        return from_nested(nested, "option queues")

    def start_position(self, default: str) -> Position:
        return Position.parse(self.starting or default, "startingOffsets")

    def end_position(self) -> Position:
        position = Position.parse(self.ending, "endingOffsets")
        if position.word == -2:
            raise SettingsError("endingOffsets=earliest reads nothing: latest or JSON expected")
        return position

    def time_range(self) -> tuple[int | None, int | None]:
        """The earliest store time, and the first that is too late, in ms since 1970."""
        start = None if self.starting_timestamp is None else to_ms(self.starting_timestamp, "startingTimestamp")
        end = None if self.ending_timestamp is None else to_ms(self.ending_timestamp, "endingTimestamp")
        if self.as_of is not None:
            end = to_ms(self.as_of, "asOfTimestamp") + 1
        if start is not None and end is not None and start > end:
            raise SettingsError("startingTimestamp is after endingTimestamp: exchange them")
        return start, end


def to_ms(text: str, option: str) -> int:
    """A time without a zone is in UTC, so that a job means the same on every machine."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"option {option} is {text[:60]!r}: milliseconds since 1970 or a time such as 2026-01-31T08:00:00Z expected"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DELAY = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def delay_s(text: str) -> float:
    match = _DELAY.fullmatch(text.strip().lower())
    if match is None:
        raise SettingsError(f"option maxTriggerDelay is {text[:40]!r}: a time such as 500ms, 30s, 15m or 1h expected")
    return float(match[1]) * _UNITS_S[match[2]]


def _words(text: str | None) -> list[str]:
    return [word for word in _NAMES.split(text or "") if word]
