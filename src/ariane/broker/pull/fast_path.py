"""The fast path for pulls: from the bytes of a chunk to the responses, for messages that are in the page cache.

    chunk ─► PullDecoder ─► cached checks ─► entries of the queue ─► records in the mapped log ─► one copy, one write

It stops before the first uncommon frame - a filter, a queue's end, an offset outside of it, records that left the page
cache or lie in two files, an error - and the connection hands that frame to the general path (handler.py), which also
does long polling, and then comes back here. Both decode to the same `Pull` and give the same bytes, so the only
difference is the CPU time (docs/decisions/pull-path.md has the figures of each step).
"""

from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.pull.checks import PullCheckCache
from ariane.broker.pull.reads import bytes_limit, commit_offset_of, count_limit
from ariane.broker.pull.responses import FoundResponses
from ariane.broker.settings import BrokerSettings
from ariane.broker.stats.counters import Counters
from ariane.errors import StoreError
from ariane.model.route import MASTER_ID
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from ariane.wire.fast.decoders import PullDecoder, begins_with_pull
from ariane.wire.fast.fields import FrameCheck, PullFrames
from ariane.wire.frame import FrameLimits

_WRITE_BYTES = 256 * 1024  # then the responses are written, if the peer still reads


class PullFastPath:
    def __init__(
        self,
        settings: BrokerSettings,
        checks: PullCheckCache,
        offsets: ConsumerOffsets,
        store: MessageStore,
        counters: Counters,
        responses: FoundResponses,
        frames: PullFrames | None = None,
    ) -> None:
        """`frames` decodes a chunk."""
        self._settings = settings
        self._commits = not settings.is_slave
        self._checks = checks
        self._offsets = offsets
        self._queues = store.components.queues
        self._reader = store.reader
        self._counters = counters
        self._responses = responses
        self._frames = frames or PullDecoder().frames
        self._limits = FrameLimits(settings.transport.frame_bytes_max, settings.transport.header_bytes_max)

    def take(self, connection: Connection, data: bytes, position: int, check: FrameCheck | None = None) -> int:
        """Answers the pulls in `data` from `position` on; returns where the first frame begins that it leaves.

        `check` is access control: a frame that it does not admit is left, too.
        """
        if not begins_with_pull(data, position):
            return position
        pieces: list[bytes | memoryview] = []
        written = 0
        reads = self._reader.read_ahead()
        for end, opaque, request, _ in self._frames(data, position, self._limits, check):
            group = self._checks.find(request, connection)  # 0.6 us against 1.2 for the checks themselves
            queue = self._queues.get(request.topic, request.queue_id)
            if group is None or queue is None:
                break
            offset = request.queue_offset
            try:
                run = reads.find(queue, offset, count_limit(request), bytes_limit(request))
                if run is None:
                    break
                records = run.pieces()
            except (StoreError, OSError):
                break
            if self._commits:
                commit_offset_of(request, queue, self._offsets)  # only now: the general path would do it once more
            count, size = len(run.offsets), run.size
            broker_id = group.broker_id if self._settings.slave_read else MASTER_ID
            self._counters.got(request.topic, request.consumer_group, request.queue_id, count, size, offset + count)
            pieces.append(
                self._responses.head(opaque, broker_id, offset + count, queue.min_offset, queue.visible_end, size)
            )
            pieces += records
            position = end
            written += size
            if written >= _WRITE_BYTES:
                _write(connection, pieces)
                pieces, written = [], 0
                if not connection.is_writable:
                    break
        _write(connection, pieces)
        return position


def _write(connection: Connection, pieces: list[bytes | memoryview]) -> None:
    """All responses in one copy. Each in one of its own, and these joined, would be two: 1.3 us more a pull."""
    if pieces:
        connection.write(b"".join(pieces))
