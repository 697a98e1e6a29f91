"""What the job `replay` can be told."""

from dataclasses import dataclass, fields, replace

from ariane.errors import SettingsError
from ariane.settings import setting
from ariane.spark.connection_options import ConnectionOptions
from ariane.spark.read_options import ReadMode, ReadOptions
from ariane.spark.write_options import WriteOptions

MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(ConnectionOptions):
    # --- from where
    topic: str = setting("", key="topic", doc="The topic whose messages are sent again.")
    archive_path: str | None = setting(
        None, key="archivePath", doc="Take them from this archive. Without: from the brokers."
    )
    source_nameservers: str | None = setting(
        None, key="sourceNameServer", doc="The cluster that they are read from, when it is another one."
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
    # --- to where
    to_topic: str = setting("", key="toTopic", doc="The topic that they are sent to, which must exist.")
    allow_same_topic: bool = setting(
        False, key="allowSameTopic", doc="Whether messages may be sent to the topic that they came from."
    )
    group: str = setting("ariane-replay", key="producerGroup", doc="The producer group brokers are told.")
    # --- how
    speed: str = setting(
        MAX, key="speed", doc="1.0: with the pauses there were between them; 10: ten times as fast; max: without."
    )
    progress_path: str | None = setting(
        None,
        key="progressPath",
        doc="A directory that every executor and the driver see, where progress is kept: run it again to go on.",
    )

    def __post_init__(self) -> None:
        if not self.topic or not self.to_topic:
            raise SettingsError("the job replay needs the options topic and toTopic: from where, and to where")
        is_same = self.source_nameservers in (None, self.nameservers) and self.topic == self.to_topic
        if is_same and not self.allow_same_topic:
            raise SettingsError(
                f"topic {self.topic} would be replayed into itself, and every consumer would see its messages twice: "
                "give another toTopic, or say allowSameTopic=true"
            )
        self.pace  # noqa: B018
        self.reading()

    @property
    def pace(self) -> float | None:
        """How many times as fast as it was; None for as fast as it goes."""
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
        return {one.name: getattr(self, one.name) for one in fields(ConnectionOptions)}

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
        """What makes two runs the same replay: all that says which messages go where."""
        names = (
            "topic", "archive_path", "source_nameservers", "starting_timestamp", "ending_timestamp", "starting",
            "ending", "tags", "keys", "to_topic",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}
