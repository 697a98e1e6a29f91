"""Options of the Spark jobs: archive, rebuild and replay."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum

from ariane.errors import SettingsError
from ariane.settings import setting
from ariane.spark.options.connection import ConnectionOptions
from ariane.spark.options.read import ReadMode, ReadOptions
from ariane.spark.options.write import WriteOptions


class Compression(StrEnum):
    ZSTD = "zstd"
    LZ4 = "lz4"
    SNAPPY = "snappy"
    GZIP = "gzip"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions(ConnectionOptions):
    archive_path: str = setting(
        "", key="archivePath", doc="The archive: a directory that every executor and the driver see under this path."
    )
    topic: str | None = setting(None, key=("topic", "topics"), doc="One topic, or several with commas.")
    topic_pattern: str | None = setting(
        None, key="topicPattern", doc="A regular expression that whole topic names must match."
    )
    store_path: str | None = setting(
        None,
        key="storePath",
        doc="Read this store directory past its broker, or a glob of several. Without topics: all of it.",
    )
    broker_name: str | None = setting(
        None,
        key="brokerName",
        doc="storePath: what the column brokerName says. Progress is kept under it, so that the store may be moved.",
    )
    live: bool | None = setting(
        None, key="storeIsLive", doc="storePath: whether a broker writes there. Default: by its lock."
    )
    compression: Compression = setting(Compression.ZSTD, key="compression", doc="Of the Parquet files.")
    bytes_per_file: int = setting(
        256 * 1024 * 1024,
        key="maxBytesPerFile",
        minimum=1024 * 1024,
        doc="About how many bytes of messages one task archives, and puts into one file for each topic and day.",
    )
    fail_on_data_loss: bool = setting(
        True, key="failOnDataLoss", doc="Whether messages that are gone, or damaged, stop the job."
    )

    def __post_init__(self) -> None:
        if not self.archive_path:
            raise SettingsError("the job archive needs the option archivePath: the directory to write to")
        if self.store_path is None and (self.topic is None) == (self.topic_pattern is None):
            raise SettingsError("give topic, topicPattern or storePath: what to archive")

    def reading(self, starting: str = "") -> ReadOptions:
        """The same as options of a read, from these offsets."""
        connection = {option.name: getattr(self, option.name) for option in fields(ConnectionOptions)}
        return ReadOptions(
            **connection,
            topic=self.topic,
            topic_pattern=self.topic_pattern,
            mode=ReadMode.BROKER if self.store_path is None else ReadMode.STORE,
            store_path=self.store_path,
            broker_name=self.broker_name,
            live=self.live,
            starting=starting,
            bytes_per_partition=self.bytes_per_file,
            fail_on_data_loss=self.fail_on_data_loss,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    store_path: str = setting(
        "", key="storePath", doc="The store: a directory that every executor and the driver see under this path."
    )
    target_path: str | None = setting(
        None, key="targetPath", doc="A directory for the new consumequeue and index. Without: those of the store."
    )
    queues: bool = setting(True, key="queues", doc="Whether consume queues are rebuilt.")
    index: bool = setting(True, key="index", doc="Whether the index is rebuilt.")
    discard_old: bool = setting(
        False,
        key="discardOld",
        doc="Whether the old ones are removed; else they are kept as consumequeue.old, index.old.",
    )
    delay_levels: str | None = setting(
        None, key="messageDelayLevel", doc="The setting of the broker, if it is not Apache's default."
    )
    index_slots: int | None = setting(
        None, key="maxHashSlotNum", minimum=1, doc="Of the index, if its files are too damaged to infer it."
    )
    bytes_per_task: int = setting(
        64 * 1024 * 1024, key="maxBytesPerPartition", minimum=4096, doc="How much of the log one task reads."
    )

    def __post_init__(self) -> None:
        if not self.store_path:
            raise SettingsError("the job rebuild needs the option storePath: the store directory of a broker")
        if not (self.queues or self.index):
            raise SettingsError("queues and index are both false: there is nothing to rebuild")


MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(ConnectionOptions):
    # --- source
    topic: str = setting("", key="topic", doc="The topic whose messages are sent again.")
    archive_path: str | None = setting(
        None, key="archivePath", doc="Read them from this archive. Default: from the brokers."
    )
    source_nameservers: str | None = setting(
        None, key="sourceNameServer", doc="The cluster to read from, if it is another one."
    )
    starting_timestamp: str | None = setting(
        None, key="startingTimestamp", doc="Messages stored at this time or later: ms since 1970, or ISO 8601."
    )
    ending_timestamp: str | None = setting(None, key="endingTimestamp", doc="Messages stored before this time.")
    starting: str = setting("", key="startingOffsets", doc="earliest, or JSON: as for spark.read.")
    ending: str = setting("latest", key="endingOffsets", doc="latest, or JSON with the first not to send.")
    tags: str | None = setting(None, key="tags", doc="Only messages with these tags: A || B.")
    keys: str | None = setting(None, key="keys", doc="Only messages with any of these keys, separated by commas.")
    fail_on_data_loss: bool = setting(
        True, key="failOnDataLoss", doc="Whether messages that are gone, or damaged, stop the job."
    )
    # --- target
    to_topic: str = setting("", key="toTopic", doc="The topic that they are sent to, which must exist.")
    allow_same_topic: bool = setting(
        False, key="allowSameTopic", doc="Whether messages may be sent to the topic that they came from."
    )
    group: str = setting("ariane-replay", key="producerGroup", doc="The producer group.")
    # --- pace and progress
    speed: str = setting(
        MAX, key="speed", doc="1.0: with the original pauses; 10: ten times as fast; max: without pauses."
    )
    progress_path: str | None = setting(
        None,
        key="progressPath",
        doc="A directory for the progress, which every executor and the driver see: run the job again to continue.",
    )

    def __post_init__(self) -> None:
        if not self.topic or not self.to_topic:
            raise SettingsError("the job replay needs the options topic and toTopic: the source and the target")
        is_same = self.source_nameservers in (None, self.nameservers) and self.topic == self.to_topic
        if is_same and not self.allow_same_topic:
            raise SettingsError(
                f"topic {self.topic} would be replayed into itself, and every consumer would see its messages twice: "
                "give another toTopic, or set allowSameTopic=true"
            )
        self.pace  # noqa: B018
        self.reading()

    @property
    def pace(self) -> float | None:
        """The speed as a multiple of the original; None for as fast as possible."""
        if self.speed.strip().lower() == MAX:
            return None
        try:
            pace = float(self.speed)
        except ValueError:
            pace = 0.0
        if not 0 < pace < 1e6:
            raise SettingsError(f"option speed is {self.speed[:40]!r}: a number above 0, such as 1.0 or 10, or max")
        return pace

    def _connection(self) -> dict[str, object]:
        return {option.name: getattr(self, option.name) for option in fields(ConnectionOptions)}

    def reading(self) -> ReadOptions:
        read = ReadOptions(
            **self._connection(),  # type: ignore[arg-type]
            topic=self.topic,
            mode=ReadMode.BROKER if self.archive_path is None else ReadMode.ARCHIVE,
            archive_path=self.archive_path,
            starting=self.starting,
            ending=self.ending,
            starting_timestamp=self.starting_timestamp,
            ending_timestamp=self.ending_timestamp,
            tags=self.tags,
            keys=self.keys,
            fail_on_data_loss=self.fail_on_data_loss,
        )
        return read if self.source_nameservers is None else replace(read, nameservers=self.source_nameservers)

    def writing(self) -> WriteOptions:
        return WriteOptions(**self._connection(), topic=self.to_topic, group=self.group)  # type: ignore[arg-type]

    def identity(self) -> dict[str, str | None]:
        """Two runs with the same values are the same replay: all options that select messages and their target."""
        names = (
            "topic", "archive_path", "source_nameservers", "starting_timestamp", "ending_timestamp", "starting",
            "ending", "tags", "keys", "to_topic",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}
