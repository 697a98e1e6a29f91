"""Cuts the end of the log, or removes all of it, when a store is opened: by `config/truncate.json`.

A member of a group may have messages that no other has and that were never confirmed. Before it follows the new master
it has to end where the two logs part. An open store is never cut: no table in memory outlives that. So it is asked for
(`request`), the store is closed as a kill would leave it, and the next start does this:

    1  the newest bytes of what will go are copied to quarantine/
    2  the request says so. Until here nothing has changed; from here on nothing is looked at again
    3  saved states, checkpoint and block checksums that say more than the shorter log has are taken back
    4  later files of the log are removed, and the rest of the last one is zeroed and synced
    5  recovery, as after a crash that lost the end of the log: queues, index, deletions of topics
    6  the request is removed

Each step gives the same when it is done again, so a crash in between is followed by the same result. What the log keeps
was synced before the request was written.

What the broker has of its own, it adapts to the shorter log when it opens its parts: consumer offsets are lowered to
the ends of queues, and half messages are read again. Progress of delays and timer only counts what is confirmed.
"""

import errno
import logging
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from operator import ge
from pathlib import Path

from ariane.errors import StoreError, StoreFull, StoreMismatch
from ariane.store.checkpoint import (
    Checkpoint,
    LastExit,
    last_exit,
    mark_running,
    read_checkpoint,
    replace_checkpoint,
)
from ariane.store.commit_log.checksum_writer import truncate_checksums
from ariane.store.commit_log.log import Segment, Segments
from ariane.store.commit_log.recovery import end_log, next_record, written_end
from ariane.store.config.truncation_request import FILE_NAME, TruncationRequest, write_request
from ariane.store.consume_queue.saved_state import (
    SavedState,
    fit_saved_states,
    read_saved_state,
    remove_saved_states,
)
from ariane.store.disk import Disk, replace_all
from ariane.store.layout import Layout
from ariane.wire.record.layout import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
)

log = logging.getLogger(__name__)

QUARANTINED_BYTES_MAX = 64 * 1024 * 1024
"""Of one cut, the newest."""
_PIECE_BYTES = 1024 * 1024
_RESYNC_BYTES_MAX = 32 * 1024 * 1024
_PHYSICAL = struct.Struct(">q")
_PHYSICAL_POSITION = 28
_ZEROS_MAX = 2
"""A record without properties ends with so many."""
_OFFSET_MAX = 2**63 - 1


# --- asking for it ----------------------------------------------------------------------------------------------------


def request(disk: Disk, layout: Layout, segments: Segments, log_end: int, wanted: TruncationRequest) -> None:
    """Writes the request for the next start. StoreMismatch, and nothing is written, if it cannot be done. Blocks.

    The caller has synced the log, and appends nothing more.
    """
    if wanted.wipe:
        check_begin(segments, wanted.to)
    else:
        check_cut(segments, wanted, log_end)
    try:
        write_request(disk, layout.config, wanted)
    except OSError as error:
        raise _named(error, f"{layout.config / FILE_NAME} cannot be written") from error


def check_begin(segments: Segments, begin: int) -> None:
    if begin % segments.segment_bytes:
        raise StoreMismatch(
            f"a log cannot begin at {begin}: its files have {segments.segment_bytes} bytes, and it begins with one of "
            "them; set mappedFileSizeCommitLog as the master has it"
        )


def check_cut(segments: Segments, wanted: TruncationRequest, log_end: int) -> None:
    """StoreMismatch unless the log can be cut there: between two records, and behind all that is confirmed."""
    to = wanted.to
    if to < wanted.confirmed:
        raise StoreMismatch(
            f"the log cannot be cut at {to}: it is confirmed up to {wanted.confirmed}, and confirmed messages are "
            "never removed. The master's log lacks them: keep this store, and find out which member has lost them"
        )
    if not segments.base <= to <= log_end:
        raise StoreMismatch(f"the log cannot be cut at {to}: it has {segments.base} to {log_end}")
    segment = segments.find(to - 1) if to > segments.base else None
    if segment is not None and to not in takewhile(partial(ge, to), record_ends(segment, segment.base)):
        raise StoreMismatch(f"the log cannot be cut at {to}: no record ends there")


def record_ends(segment: Segment, position: int) -> Iterator[int]:
    """Where the records of a file end, from one that begins at `position` on. Looks at their heads only. Damage is
    passed, up to the next record."""
    view, base, end = segment.file.view(), segment.base, segment.end
    last = begin = position
    while True:
        size = _size_at(view, position - base, position) if end - position >= SIZE_AND_MAGIC.size else 0
        following = None
        if not size and position < end:
            following = next_record(segment, last, min(end - 1, last + _RESYNC_BYTES_MAX), RECORD_BYTES_MAX)
        if position > begin and (following is None or following > position):  # else the last size was wrong
            yield position
        if size:
            last, position = position, position + size
        elif following is not None:
            last = position = following
        else:
            return


def _size_at(view: memoryview, at: int, physical: int) -> int:
    """Of the record or blank record that is there; 0 when there is none."""
    size, magic = SIZE_AND_MAGIC.unpack_from(view, at)
    rest = len(view) - at
    if magic == BLANK_MAGIC:
        return int(size) if size == rest else 0
    is_record = magic in (MAGIC_V1, MAGIC_V2) and RECORD_BYTES_MIN <= size <= rest
    return int(size) if is_record and _PHYSICAL.unpack_from(view, at + _PHYSICAL_POSITION)[0] == physical else 0


# --- doing it ---------------------------------------------------------------------------------------------------------


def carry_out(
    disk: Disk, layout: Layout, segment_bytes: int, wanted: TruncationRequest, boot: str
) -> TruncationRequest:
    """Steps 1 to 4, before recovery; the request with `kept`. StoreMismatch if it cannot be done: nothing is changed
    then. StoreError or StoreFull if the disk does not allow it: the next start tries again."""
    try:
        segments = Segments(disk, layout.commit_log, segment_bytes, writable=True)
        try:
            if not wanted.kept:
                _check(segments, wanted)
                _keep(disk, layout, segments, wanted)
                if last_exit(disk, layout.abort, boot) is LastExit.CLEAN:
                    mark_running(disk, layout.abort, boot)  # from here on an end of this process is a crash
                wanted = _replaced(disk, layout, wanted)
            (_wipe if wanted.wipe else _cut)(disk, layout, segments, wanted.to)
        finally:
            segments.close()
    except OSError as error:
        raise _named(error, f"the log cannot be cut at {wanted.to}") from error
    log.warning("the log was removed" if wanted.wipe else "the log was cut", extra={"at": wanted.to})
    return wanted


def _named(error: OSError, what: str) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"{what}: {error.strerror}; free disk space")
    return StoreError(f"{what}: {error.strerror}; check the disk")


def _check(segments: Segments, wanted: TruncationRequest) -> None:
    if wanted.wipe:
        check_begin(segments, wanted.to)
    else:
        check_cut(segments, wanted, segments.last.end if segments.last is not None else 0)


def _replaced(disk: Disk, layout: Layout, wanted: TruncationRequest) -> TruncationRequest:
    kept = TruncationRequest(wanted.to, wanted.epoch, wanted.confirmed, wanted.wipe, kept=True)
    write_request(disk, layout.config, kept)
    return kept


def _keep(disk: Disk, layout: Layout, segments: Segments, wanted: TruncationRequest) -> None:
    """Copies what will go to quarantine, named by the offset of its first byte, its length and the epoch."""
    low = segments.base if wanted.wipe else wanted.to
    begin, end = _tail(segments, low)
    if begin == end:
        return
    kept = layout.quarantine / f"{begin:020d}-{end - begin}-epoch-{wanted.epoch}"
    disk.make_directory(layout.quarantine)
    replace_all(disk, kept, _bytes_between(segments, begin, end))
    log.warning(
        "a part of the log will be removed: its newest bytes are kept in quarantine",
        extra={"from": low, "to": end, "kept_from": begin, "file": str(kept), "epoch": wanted.epoch},
    )


def _tail(segments: Segments, low: int) -> tuple[int, int]:
    """Begin and end of the newest whole records from `low` on, as far as they may be kept."""
    end = written_end(segments, low)
    least = end - QUARANTINED_BYTES_MAX
    begin = low if low >= least else None
    for segment in segments.between(low, end):
        for position in record_ends(segment, max(low, segment.base)):
            if begin is None and least <= position <= end:
                begin = position
            if position >= end:
                end = position if position - end <= _ZEROS_MAX else end
                break
    return least if begin is None else begin, end


def _bytes_between(segments: Segments, begin: int, end: int) -> bytes:
    data = bytearray()
    for segment in segments.between(begin, end):
        for at in range(max(begin, segment.base), min(end, segment.end), _PIECE_BYTES):
            data += segment.file.read(min(_PIECE_BYTES, end - at, segment.end - at), at - segment.base)
    return bytes(data)


def _cut(disk: Disk, layout: Layout, segments: Segments, to: int) -> None:
    fit_saved_states(disk, layout.queue_checksums, to)
    state, _ = read_saved_state(disk, layout.queue_checksums)
    checkpoint = read_checkpoint(disk, layout.checkpoint)
    if checkpoint.has_ariane_slot:
        replace_checkpoint(disk, layout.checkpoint, _fitted(checkpoint, state, to))
    elif disk.size(layout.checkpoint) is not None:  # Apache's, or damaged: all is compared with the log anyway
        disk.remove(layout.checkpoint)
        disk.sync_directory(layout.checkpoint.parent)
    truncate_checksums(disk, layout.commit_log_checksums, segments, to)
    end_log(segments, to)


def _fitted(checkpoint: Checkpoint, state: SavedState | None, to: int) -> Checkpoint:
    """Of the state that is left. Without one, what it says of the log is still right up to the cut."""
    flushed_to = min(checkpoint.flushed_to, to)
    dispatched_to, sequence, stamp = min(checkpoint.dispatched_to, to), checkpoint.sequence, 0
    if state is not None:
        dispatched_to, sequence, stamp = state.log_end, state.sequence, state.store_timestamp_ms
    return replace(
        checkpoint,
        flushed_to=flushed_to,
        dispatched_to=dispatched_to,
        sequence=sequence,
        store_timestamp_ms=stamp,
        physic_timestamp_ms=stamp,
        logics_timestamp_ms=stamp,
        index_timestamp_ms=stamp,
    )


def _wipe(disk: Disk, layout: Layout, segments: Segments, begin: int) -> None:
    remove_saved_states(disk, layout.queue_checksums)
    replace_checkpoint(disk, layout.checkpoint, Checkpoint(flushed_to=begin, dispatched_to=begin))
    truncate_checksums(disk, layout.commit_log_checksums, segments, 0)
    while len(segments):
        segments.drop_last()
    for root in (layout.consume_queues, layout.consume_queue_extensions):
        for topic in disk.names(root):
            _remove_queues(disk, root / topic)
        if disk.names(root.parent).count(root.name):
            disk.sync_directory(root)
    _empty(disk, layout.index)
    if begin:
        segments.adopt(segments.create(begin, allocated=segments.segment_bytes))


def _remove_queues(disk: Disk, topic: Path) -> None:
    queues = disk.names(topic)
    for queue in queues:
        _empty(disk, topic / queue)
        with suppress(OSError):  # not a directory, as recovery ignores it too
            disk.remove_directory(topic / queue)
    if queues:
        disk.sync_directory(topic)
    with suppress(OSError):
        disk.remove_directory(topic)


def _empty(disk: Disk, directory: Path) -> None:
    names = disk.names(directory)
    for name in names:
        disk.remove(directory / name)
    if names:
        disk.sync_directory(directory)
