"""What the job `rebuild` can be told."""

from dataclasses import dataclass

from ariane.errors import SettingsError
from ariane.settings import setting


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
        None, key="messageDelayLevel", doc="The broker's own, when it is not Apache's default."
    )
    index_slots: int | None = setting(
        None, key="maxHashSlotNum", minimum=1, doc="Of the index, when its files are too damaged to tell."
    )
    bytes_per_task: int = setting(
        64 * 1024 * 1024, key="maxBytesPerPartition", minimum=4096, doc="Of the log, that one task reads."
    )

    def __post_init__(self) -> None:
        if not self.store_path:
            raise SettingsError("the job rebuild needs the option storePath: the store directory of a broker")
        if not (self.queues or self.index):
            raise SettingsError("queues and index are both false: there is nothing to rebuild")
