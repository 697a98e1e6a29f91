"""The straight line for pulls: from the bytes of a chunk to the answers, for what is there and in memory.

    chunk ─► pull_frames ─► admissions ─► entries of the queue ─► records where they lie ─► one copy, one write

What is not usual - a filter, a queue's end, an offset outside of it, records that left the page cache or lie in two
files, a refusal - ends the line before that frame: the connection hands it to the general way (handlers/pull.py), which
also waits where there is to wait, and then comes back here. Both give the same bytes, so only the CPU shows which one a
pull took (docs/decisions/pull-path.md has the figures of each step).
"""

from ariane.broker.groups.offsets import ConsumerOffsets, can_be_committed
from ariane.broker.pull.checks import PullCheckCache
from ariane.broker.pull.reads import bytes_wanted
from ariane.broker.pull.responses import FoundResponses
from ariane.broker.settings import BrokerSettings
from ariane.broker.stats.counters import Counters
from ariane.errors import StoreError
from ariane.model.route import MASTER_ID
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from ariane.wire.fast_frames import begins_with_pull, pull_frames
from ariane.wire.frame import FrameLimits
from ariane.wire.requests.pull import PullSysFlag

_COMMIT_OFFSET = int(PullSysFlag.COMMIT_OFFSET)
_WRITTEN_TOGETHER_BYTES = 256 * 1024  # then it is looked whether the peer still takes what it gets


class PullFastPath:
    def __init__(
        self,
        settings: BrokerSettings,
        admissions: PullCheckCache,
        offsets: ConsumerOffsets,
        store: MessageStore,
        counters: Counters,
        responses: FoundResponses,
    ) -> None:
        self._settings = settings
        self._admissions = admissions
        self._offsets = offsets
        self._queues = store.components.queues
        self._reader = store.reader
        self._counters = counters
        self._answers = responses
        self._limits = FrameLimits(settings.transport.frame_bytes_max, settings.transport.header_bytes_max)

    def take(self, connection: Connection, data: bytes, position: int) -> int:
        """Answers the pulls in `data` from `position` on; where the first frame begins that it leaves to others."""
        if not begins_with_pull(data, position):
            return position
        pieces: list[bytes | memoryview] = []
        written = 0
        reads = self._reader.read_ahead()
        for end, opaque, request, _ in pull_frames(data, position, self._limits):
            group = self._admissions.find(request)  # checks as they were passed before: 0.6 us against 1.2
            queue = self._queues.get(request.topic, request.queue_id)
            if group is None or queue is None:
                break
            offset, bytes_max = request.queue_offset, bytes_wanted(request)
            try:
                run = reads.find(queue, offset, max(1, request.max_msg_nums), bytes_max)
                if run is None:
                    break
                records = run.pieces()
            except (StoreError, OSError):
                break
            if request.sys_flag & _COMMIT_OFFSET and can_be_committed(request.commit_offset, queue.max_offset):
                self._offsets.commit(request.consumer_group, request.topic, request.queue_id, request.commit_offset)
            count, size = len(run.offsets), run.size
            broker_id = group.broker_id if self._settings.slave_read else MASTER_ID
            self._counters.got(request.topic, request.consumer_group, request.queue_id, count, size, offset + count)
            pieces.append(
                self._answers.head(opaque, broker_id, offset + count, queue.min_offset, queue.max_offset, size)
            )
            pieces += records
            position = end
            written += size
            if written >= _WRITTEN_TOGETHER_BYTES:
                _write(connection, pieces)
                pieces, written = [], 0
                if not connection.is_writable:
                    break
        _write(connection, pieces)
        return position


def _write(connection: Connection, pieces: list[bytes | memoryview]) -> None:
    """All answers in one copy. Each in one of its own, and these joined, would be two: 1.3 us more a pull."""
    if pieces:
        connection.write(b"".join(pieces))
