"""What the job `archive` can be told."""

from dataclasses import dataclass, fields
from enum import StrEnum

from ariane.errors import SettingsError
from ariane.settings import setting
from ariane.spark.connection_options import ConnectionOptions
from ariane.spark.read_options import ReadMode, ReadOptions


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
    live: bool | None = setting(None, key="storeIsLive", doc="storePath: whether a broker writes there. Found out.")
    compression: Compression = setting(Compression.ZSTD, key="compression", doc="How pages are packed.")
    bytes_per_file: int = setting(
        256 * 1024 * 1024,
        key="maxBytesPerFile",
        minimum=1024 * 1024,
        doc="Messages of so many bytes, about, make one task and for each topic and day one file.",
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
        """The same as options of a read, from these offsets on."""
        connection = {one.name: getattr(self, one.name) for one in fields(ConnectionOptions)}
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
