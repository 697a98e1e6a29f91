"""Settings of the message store, and the RocketMQ keys that it accepts but does not use."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ariane.model.system_topics import DEFAULT_LEVELS
from ariane.settings import Key, setting

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


class FlushDiskType(StrEnum):
    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    root: Path = setting(Path("store"), key="storePathRootDir", doc="Directory of every store file.")
    commit_log_path: Path | None = setting(
        None,
        key="storePathCommitLog",
        doc="Directory of the commit log, when it is not `commitlog` under the root.",
    )
    segment_bytes: int = setting(
        1 * GiB,
        key=("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"),
        minimum=4 * KiB,
        maximum=2 * GiB - 1,
        doc="Size of one commit log file. All files of a store have the size it was first written with.",
    )
    queue_segment_bytes: int = setting(
        6_000_000,
        key=("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"),
        minimum=20,
        maximum=2_000_000_000,
        doc="Size of one consume queue file: 300,000 entries of 20 bytes. Rounded up to whole entries.",
    )
    index_enable: bool = setting(True, key="messageIndexEnable", doc="Index messages by their keys.")
    index_slots: int = setting(
        5_000_000, key="maxHashSlotNum", minimum=1, maximum=2**31 - 1, doc="Hash slots of one index file."
    )
    index_entries: int = setting(
        20_000_000, key="maxIndexNum", minimum=2, maximum=2**31 - 1, doc="Entries of one index file."
    )
    max_message_bytes: int = setting(
        4 * MiB,
        key="maxMessageSize",
        minimum=1 * KiB,
        maximum=15 * MiB,
        doc="Largest body of a message, or of a batch as it is sent. A frame holds 16 MiB.",
    )
    seal_records: bool = setting(
        False,
        key="enabledAppendPropCRC",
        doc="End each record with a checksum over all of it, as Apache 5 can: then every flipped bit is detected, not "
        "only those of the body. Off as in Apache: 4.x clients see the checksum as a property. An existing checksum "
        "is always checked.",
    )
    sum_block_bytes: int = setting(
        16 * KiB,
        minimum=0,
        maximum=8 * MiB,
        doc="Block size of the commit log's checksums, which are stored in a directory beside it: with them every "
        "flipped bit is detected, by `ariane store verify` and before a consumer gets the message. When a header or a "
        "property is damaged, all messages in its block are withheld. 0 for no checksums and no check, else 512 or "
        "more. A file keeps the block size that it was created with.",
    )
    reserve_bytes: int = setting(
        8 * MiB,
        minimum=0,
        maximum=1024 * MiB,
        doc="Size of a file that is given up when the file system is full, so that a broker can start and save its "
        "tables without a free byte; at most 1/64 of the file system. 0 for none.",
    )
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.SYNC,
        key="flushDiskType",
        doc="When an append counts as stored: SYNC_FLUSH after a sync of the disk, shared by all who wait; ASYNC_FLUSH "
        "at once, with a sync every flush_interval_ms. Apache's default is ASYNC_FLUSH; with SYNC_FLUSH a broker "
        "without replicas loses nothing in a power cut.",
    )
    flush_interval_ms: int = setting(
        500,
        key="flushIntervalCommitLog",
        minimum=1,
        maximum=60_000,
        doc="Time between two syncs with ASYNC_FLUSH, at any rate of messages: a power cut loses at most what was "
        "acknowledged in this time and the duration of a sync before it.",
    )
    queue_flush_interval_ms: int = setting(
        1_000,
        key="flushIntervalConsumeQueue",
        minimum=1,
        maximum=60_000,
        doc="Time between two passes that write the new entries of consume queues to their files.",
    )
    queue_flush_thorough_interval_ms: int = setting(
        60_000,
        key="flushConsumeQueueThoroughInterval",
        minimum=1,
        maximum=3_600_000,
        doc="Time between two checkpoints, which also sync queues and index, and bound the recovery work of the next "
        "start after a crash.",
    )
    sync_flush_timeout_ms: int = setting(
        5_000,
        key="syncFlushTimeout",
        minimum=1,
        maximum=600_000,
        doc="How long an append waits for its sync; then its result is unknown (FLUSH_DISK_TIMEOUT).",
    )
    page_cache_busy_timeout_ms: int = setting(
        1_000,
        key="osPageCacheBusyTimeOutMills",
        minimum=1,
        maximum=600_000,
        doc="An append that takes longer than this marks the store busy: producers are asked to slow down.",
    )
    message_delay_levels: str = setting(
        DEFAULT_LEVELS, key="messageDelayLevel", doc="The delay of each level, level 1 first."
    )
    retention_hours: int = setting(
        72,
        key="fileReservedTime",
        minimum=0,
        maximum=24 * 365 * 10,
        doc="Age at which a commit log file may be deleted, counted from its last write.",
        reloadable=True,
    )
    delete_when: str = setting(
        "04",
        key="deleteWhen",
        doc="Hours of the day, local time, at which old files are deleted; several separated by semicolons.",
    )
    disk_max_used_ratio: float = setting(
        0.75,
        key=Key("diskMaxUsedSpaceRatio", per_unit=100),
        minimum=0.1,
        maximum=0.95,
        doc="Above this disk use old files are deleted at any hour. RocketMQ's key counts in percent.",
        reloadable=True,
    )
    force_clean_ratio: float = setting(
        0.85,
        key=Key("diskSpaceCleanForciblyRatio", per_unit=100),
        minimum=0.3,
        maximum=1.0,
        doc="Above this disk use the oldest files are deleted whether they are old enough or not.",
        reloadable=True,
    )
    refuse_writes_ratio: float = setting(
        0.90,
        key=Key("diskSpaceWarningLevelRatio", per_unit=100),
        minimum=0.35,
        maximum=1.0,
        doc="Above this disk use writes are refused; reads and deletes continue.",
        reloadable=True,
    )
    clean_forcibly: bool = setting(
        True,
        key="cleanFileForciblyEnable",
        doc="Whether files that are not old enough may be deleted when the disk is full.",
    )
    clean_interval_ms: int = setting(
        10_000,
        key="cleanResourceInterval",
        minimum=10,
        maximum=3_600_000,
        doc="Time between two checks of the disk's use and the files' age.",
    )
    memory_ratio: float = setting(
        0.40,
        key=Key("accessMessageInMemoryMaxRatio", per_unit=100),
        minimum=0.0,
        maximum=0.95,
        doc="How much of the machine's memory the cached end of the log is assumed to take: a reader that is further "
        "behind gets shorter responses and the suggestion to read from a slave.",
    )
    pull_count_max: int = setting(
        32,
        key="maxTransferCountOnMessageInMemory",
        minimum=1,
        maximum=1024,
        doc="Most messages in one pull response, whatever is requested. 1,024 is the most that a Java consumer may "
        "request. With an SQL92 filter, the most per read of the log: such a pull reads again until it has what it "
        "requests.",
        reloadable=True,
    )
    pull_bytes_max: int = setting(
        256 * KiB,
        key="maxTransferBytesOnMessageInMemory",
        minimum=1,
        maximum=15 * MiB,
        doc="Most bytes of records in one pull response; the first message is returned however large. A frame holds "
        "16 MiB.",
        reloadable=True,
    )
    far_pull_count_max: int = setting(
        8,
        key="maxTransferCountOnMessageInDisk",
        minimum=1,
        maximum=1024,
        doc="The same number of messages for a reader that is further behind than memory_ratio.",
        reloadable=True,
    )
    far_pull_bytes_max: int = setting(
        64 * KiB,
        key="maxTransferBytesOnMessageInDisk",
        minimum=1,
        maximum=15 * MiB,
        doc="The same number of bytes for a reader that is further behind than memory_ratio.",
        reloadable=True,
    )


_NO_MAPPED_WRITES = (
    "the log is appended by pwrite and never written through a mapping, so there is nothing to warm or pin"
)

UNSUPPORTED: dict[str, str] = {
    "transientStorePoolEnable": "a staging pool protects mapped writes from page faults; our appends do not go "
    "through a mapping, so acknowledged messages are never only in a pool",
    "transientStorePoolSize": "there is no transient store pool",
    "fastFailIfNoBufferInStorePool": "there is no transient store pool",
    "commitIntervalCommitLog": "there is no transient store pool to commit",
    "commitCommitLogLeastPages": "there is no transient store pool to commit",
    "commitCommitLogThoroughInterval": "there is no transient store pool to commit",
    "warmMapedFileEnable": _NO_MAPPED_WRITES,
    "flushLeastPagesWhenWarmMapedFile": _NO_MAPPED_WRITES,
    "useReentrantLockWhenPutMessage": "one event loop appends: there is no lock to choose",
    "putMsgIndexHightWater": "queues and index are fed with the append, so they cannot fall behind",
    "flushCommitLogLeastPages": "a message is synced within flushIntervalCommitLog, however few there are",
    "flushCommitLogThoroughInterval": "every sync is thorough: see flushCommitLogLeastPages",
    "flushCommitLogTimed": "a sync runs at an interval, or at once when an append waits for it",
    "flushConsumeQueueLeastPages": "new entries of all queues are written every flushIntervalConsumeQueue",
    "destroyMapedFileIntervalForcibly": "a deleted file is unlinked at once and unmapped by its last reader",
    "redeleteHangedFileInterval": "a deleted file cannot hang: see destroyMapedFileIntervalForcibly",
    "deleteCommitLogFilesInterval": "unlinking needs no pause: no mapping is torn down by it",
    "deleteConsumeQueueFilesInterval": "unlinking needs no pause: no mapping is torn down by it",
    "checkCRCOnRecover": "recovery always checks",
    "messageIndexSafe": "the checkpoint always covers the index",
    "mappedFileSizeConsumeQueueExt": "extensions are read, not written",
    "enableConsumeQueueExt": "extensions are read, not written",
    "bitMapLengthConsumeQueueExt": "extensions are read, not written",
    "maxMsgsNumBatch": "a query returns at most 64 messages, as Apache's default",
    "debugLockEnable": "there is no lock to debug",
    "duplicationEnable": "replication decides what is duplicated",
    "diskFallRecorded": "statistics count it always",
}
