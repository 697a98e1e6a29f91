"""What `spark.read` and `spark.readStream` can be told. Names after an option's first are Apache's or Kafka's."""

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
    """What becomes of bodies that do not fit; Spark's words."""

    KEEP = "PERMISSIVE"
    DROP = "DROPMALFORMED"
    FAIL = "FAILFAST"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(ConnectionOptions):
    # --- what
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
        doc="store: whether a broker is writing there. Then what it noted as indexed is read. Found out by its lock.",
    )
    broker_name: str | None = setting(
        None, key="brokerName", doc="store: what the column brokerName says, which no file of a store does."
    )
    # --- from where to where
    starting: str = setting("", key="startingOffsets", doc="earliest, latest or JSON. Batch: earliest; stream: latest.")
    ending: str = setting("latest", key="endingOffsets", doc="Batch only: latest, or JSON with the first not to read.")
    starting_timestamp: str | None = setting(
        None, key="startingTimestamp", doc="Messages stored at this time or later: ms since 1970, or ISO 8601."
    )
    ending_timestamp: str | None = setting(None, key="endingTimestamp", doc="Messages stored before this time.")
    as_of: str | None = setting(
        None, key="asOfTimestamp", doc="The topic as it was at this time: up to it, and including it."
    )
    # --- which
    tags: str | None = setting(None, key=("tags", "subExpression"), doc="Tags, as in a subscription: A || B.")
    sql_filter: str | None = setting(None, key="sqlFilter", doc="A SQL92 expression over properties, for brokers.")
    keys: str | None = setting(None, key="keys", doc="Messages with any of these keys, separated by commas.")
    # --- how the group is seen
    group: str | None = setting(
        None,
        key=("consumerGroup", "group"),
        doc="Streams: the group under which progress is shown, and the start of a stream from latest is kept.",
    )
    # --- how much at a time
    offsets_per_trigger: int | None = setting(
        None, key="maxOffsetsPerTrigger", minimum=1, doc="Most messages in a micro-batch, over all queues."
    )
    bytes_per_trigger: int | None = setting(
        None, key="maxBytesPerTrigger", minimum=1, doc="Most bytes in a micro-batch, by the mean size of messages."
    )
    offsets_per_trigger_min: int | None = setting(
        None,
        key="minOffsetsPerTrigger",
        minimum=1,
        doc="Wait for so many messages, but no longer than maxTriggerDelay.",
    )
    trigger_delay: str = setting("15m", key="maxTriggerDelay", doc="A time such as 500ms, 30s, 15m or 1h.")
    partitions_min: int | None = setting(
        None, key="minPartitions", minimum=1, maximum=100_000, doc="At least so many partitions, if there are messages."
    )
    records_per_partition: int | None = setting(
        None, key="maxRecordsPerPartition", minimum=1, doc="Most messages in one partition."
    )
    bytes_per_partition: int | None = setting(
        None,
        key="maxBytesPerPartition",
        minimum=1,
        doc="Most bytes in one partition: by the mean size of messages from brokers, exactly from a store (128 MiB).",
    )
    pull_count: int = setting(
        256,
        key="pullBatchSize",
        minimum=1,
        maximum=1024,
        doc="Most messages of one pull. A broker gives 32 unless its maxTransferCountOnMessageInMemory says otherwise.",
    )
    pull_timeout_ms: int = setting(
        10_000, key="pullTimeout", minimum=100, maximum=600_000, doc="Time for the answer to one pull."
    )
    route_refresh_s: float = setting(
        10.0, key="routeRefreshSeconds", minimum=0.05, maximum=3600, doc="Streams: how often new queues are looked for."
    )
    # --- what comes out
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
        doc="json: what becomes of bodies that do not fit. PERMISSIVE: a row with the text in the column below. "
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
        doc="A directory of Parquet files for bodies that do not fit, and for damaged records: where they are, what "
        "they hold, and why. They are no rows then, and stop nothing.",
    )
    pushdown: bool = setting(
        False,
        key="pushdown",
        doc="Whether conditions of the query reach the source. Off: Spark 4.3 lets them leak into later queries.",
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
            raise SettingsError("archivePath is for readMode=archive: leave it out, or leave out what contradicts it")
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
            raise SettingsError("mode and badRecordsPath both say what becomes of bad records: leave one out")
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
        """The queues of the option `queues`; the numbers mean nothing."""
        import json

        try:
            wanted = json.loads(self.queues or "{}")
            nested = {
                topic: {name: dict.fromkeys(map(str, ids), 0) for name, ids in brokers.items()}
                for topic, brokers in wanted.items()
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
        """Stored from, and before, in ms since 1970."""
        start = None if self.starting_timestamp is None else to_ms(self.starting_timestamp, "startingTimestamp")
        end = None if self.ending_timestamp is None else to_ms(self.ending_timestamp, "endingTimestamp")
        if self.as_of is not None:
            end = to_ms(self.as_of, "asOfTimestamp") + 1
        if start is not None and end is not None and start > end:
            raise SettingsError("startingTimestamp lies behind endingTimestamp: exchange them")
        return start, end


def to_ms(text: str, option: str) -> int:
    """A time without a zone is in UTC: the same job means the same everywhere."""
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
    found = _DELAY.fullmatch(text.strip().lower())
    if found is None:
        raise SettingsError(f"option maxTriggerDelay is {text[:40]!r}: a time such as 500ms, 30s, 15m or 1h expected")
    return float(found[1]) * _UNITS_S[found[2]]


def _words(text: str | None) -> list[str]:
    return [word for word in _NAMES.split(text or "") if word]
