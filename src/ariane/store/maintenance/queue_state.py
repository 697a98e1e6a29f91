"""Whether the saved state of the queues can be used at a start, and what is done when the log has been read again."""

import logging

from ariane.errors import StoreMismatch
from ariane.model.system_topics import is_system
from ariane.store.checkpoint import Checkpoint
from ariane.store.commit_log.log import Segments
from ariane.store.config.deletions import Deletions
from ariane.store.consume_queue.entry import ENTRY_BYTES
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.consume_queue.saved_state import SavedState, read_saved_state
from ariane.store.disk import Disk
from ariane.store.layout import Layout
from ariane.store.settings import StoreSettings

log = logging.getLogger(__name__)


def usable_state(
    disk: Disk, layout: Layout, settings: StoreSettings, segments: Segments, checkpoint: Checkpoint
) -> SavedState | None:
    """The newest intact state, if the queues were not changed by anybody who does not know it.

    StoreMismatch when the queues were written with files of another size.
    """
    state, problems = read_saved_state(disk, layout.queue_checksums)
    for problem in problems:
        log.error(
            "a saved state of the queues is damaged: the other copy, or the log, is used", extra={"file": problem}
        )
    if state is None:
        return None
    segment_bytes = -(-settings.queue_segment_bytes // ENTRY_BYTES) * ENTRY_BYTES
    if state.queue_segment_bytes != segment_bytes:
        raise StoreMismatch(
            f"the consume queues of {layout.root} have files of {state.queue_segment_bytes} bytes, "
            f"mappedFileSizeConsumeQueue says {segment_bytes}: set the size that the store was written with"
        )
    reason = _problem(state, segments, checkpoint)
    if reason is not None:
        log.warning("the saved state of the queues is not used", extra={"reason": reason})
        return None
    return state


def _problem(state: SavedState, segments: Segments, checkpoint: Checkpoint) -> str | None:
    end = segments.last.end if segments.last is not None else 0
    if not segments.base <= state.log_end <= end:
        return f"it ends at {state.log_end}, the log has {segments.base} to {end}"
    if checkpoint.sequence > state.sequence + 1:
        return "the checkpoint is newer: an earlier version has written the store since"
    stamps = {checkpoint.physic_timestamp_ms, checkpoint.logics_timestamp_ms}
    if checkpoint.has_ariane_slot and stamps != {checkpoint.store_timestamp_ms}:
        return "another program has written the checkpoint since"
    return None


def finish_repair(queues: ConsumeQueues) -> None:
    """After the log was read: every queue ends where it ended before, whatever the log still has."""
    for queue, (_, end) in queues.damaged.items():
        found = queue.max_offset
        queue.extend_to(end)
        log.error(
            "a consume queue was damaged: it is built again from the log",
            extra={
                "topic": queue.topic, "queue": queue.queue_id, "reason": queue.problem, "end": queue.max_offset,
                "missing_records": queue.max_offset - found,
            },
        )  # fmt: skip
    queues.damaged.clear()


def finish_comparison(
    queues: ConsumeQueues,
    topics_before: set[str],
    deletions: Deletions,
    log_end: int,
    known: frozenset[str] | None,
) -> None:
    """After the whole log was read: reports queues that differed from it.

    A topic that had no queue before and is not among the `known` ones was deleted by somebody who did not record it.
    """
    for queue in queues:
        problem = queue.compared()
        if problem is not None:
            log.error(
                "a consume queue differed from the log: it is built again",
                extra={"topic": queue.topic, "queue": queue.queue_id, "reason": problem, "end": queue.max_offset},
            )
    new = set(queues.topics()) - topics_before
    deleted = sorted(topic for topic in new - known if not is_system(topic)) if known is not None else []
    deletions.add(deleted, log_end)
    for topic in deleted:
        log.warning("a deleted topic is still in the log: it stays deleted", extra={"topic": topic})
        queues.delete_topic(topic)
