"""kill -9 at any moment, again and again on the same store: nothing acknowledged is lost, nothing else appears.

`ARIANE_KILLS` says how often, `ARIANE_FLIPS` how many bits are flipped in what a killed process leaves.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ariane.clock import Clock
from ariane.store.checkpoint import read_checkpoint
from ariane.store.commit_log.checked_blocks import checksummed_to
from ariane.store.commit_log.log import Segments
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout, offset_name
from ariane.store.message_store import MessageStore
from ariane.store.offline.verify import verify_store
from ariane.store.settings import FlushDiskType
from ariane.wire.record.read import RecordView
from tests.store.block_checksums import check_block_checksums, is_covered
from tests.store.damage import PARTS, position_in
from tests.store.stores import HOST, records
from tests.store.writer import QUEUES, TOPIC, settings_of, survivors

KILLS = int(os.environ.get("ARIANE_KILLS", "50"))
FLIPS = int(os.environ.get("ARIANE_FLIPS", "15"))
SEGMENT_BYTES, BLOCK_BYTES = 256 * 1024, 4096
PROJECT = Path(__file__).parent.parent.parent


class Writer:
    """The child process, and what it has acknowledged."""

    def __init__(self, root: Path, kind: FlushDiskType, seed: int) -> None:
        command = [sys.executable, "-m", "tests.store.writer", str(root), kind.value, str(seed)]
        self._process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE)
        self.begin: int | None = None
        self.acknowledged = 0
        """How many messages, from 0 on, the store must hold."""

    def read_until(self, is_enough: Callable[[int], bool]) -> None:
        """Reads what the child says until `is_enough` of the number of chunks, or its end."""
        assert self._process.stdout is not None
        chunks = 0
        while not is_enough(chunks) and (line := self._process.stdout.readline()):
            chunks += self._take(line)

    def _take(self, line: bytes) -> int:
        first, last = line.split()
        if first == b"from":
            self.begin = int(last)
            return 0
        self.acknowledged = max(self.acknowledged, int(last) + 1)
        return 1

    def kill(self) -> None:
        """And takes what it still said before its end."""
        self._process.kill()
        self.read_until(lambda chunks: False)
        status = self._process.wait()
        assert status == -9, f"the writer ended by itself with status {status}"
        assert self._process.stdout is not None
        self._process.stdout.close()


def kill_one(root: Path, rng: random.Random) -> Writer:
    """Four of five die while they write; the fifth in the middle of its start or soon after."""
    writer = Writer(root, rng.choice(list(FlushDiskType)), rng.randrange(2**32))
    if rng.random() < 0.8:
        wanted = rng.randint(1, 60)
        writer.read_until(lambda chunks: chunks >= wanted)
        writer.kill()
    else:
        timer = threading.Timer(rng.uniform(0.1, 0.6), writer._process.kill)
        timer.start()
        writer.read_until(lambda chunks: False)
        writer.kill()
        timer.join()
    return writer


def messages_in(root: Path) -> int:
    assert check_block_checksums(RealDisk(), root=root).faults == []
    store = MessageStore.open(settings_of(root, FlushDiskType.SYNC), Clock(), HOST)
    try:
        return survivors(store)
    finally:
        end = store.components.commit_log.max_offset
        store.close()
        assert is_covered(RealDisk(), end, root)


def test_no_kill_loses_an_acknowledged_message(tmp_path: Path) -> None:
    rng = random.Random()
    acknowledged = 0
    for number in range(KILLS):
        writer = kill_one(tmp_path, rng)
        assert writer.begin is None or writer.begin >= acknowledged, "an acknowledged message is lost"
        acknowledged = max(acknowledged, writer.acknowledged)
        if number % 5 == 4 or number == KILLS - 1:  # between, recoveries follow each other without a clean stop
            assert messages_in(tmp_path) >= acknowledged, "an acknowledged message is lost"
    assert acknowledged > KILLS


# --- a flipped bit in what a killed process leaves --------------------------------------------------------------------


def opened(root: Path) -> MessageStore:
    return MessageStore.open(settings_of(root, FlushDiskType.SYNC), Clock(), HOST)


def tail_of(root: Path) -> list[RecordView]:
    """The records since the last checkpoint that have checksums."""
    layout = Layout.under(root)
    segments = Segments(RealDisk(), layout.commit_log, SEGMENT_BYTES, writable=False)
    end = checksummed_to(RealDisk(), layout.commit_log_checksums, segments)
    segments.close()
    begin = read_checkpoint(RealDisk(), layout.checkpoint).dispatched_to
    copy = root.with_name("opened")
    shutil.copytree(root, copy)
    store = opened(copy)
    tail = [
        view for view in records(store) if begin <= view.physical_offset and view.physical_offset + view.size <= end
    ]
    store.close()
    shutil.rmtree(copy)
    return tail


def delivered(store: MessageStore) -> set[bytes]:
    found: set[bytes] = set()
    for queue_id in range(QUEUES):
        queue, offset = store.components.queues.get(TOPIC, queue_id), 0
        while queue is not None and offset < queue.max_offset:
            result = store.reader.read(TOPIC, queue_id, offset, 32)
            assert result.next_offset > offset
            found.update(map(bytes, result.slices))
            offset = result.next_offset
    return found


def test_a_flip_in_the_tail_that_a_killed_process_leaves_is_reported_and_not_delivered(tmp_path: Path) -> None:
    root, rng = tmp_path / "killed", random.Random(int.from_bytes(os.urandom(4), "big"))
    tail: list[RecordView] = []
    while len(tail) < 20:
        writer = Writer(root, FlushDiskType.SYNC, rng.randrange(2**32))
        writer.read_until(lambda chunks: chunks >= 40)
        writer.kill()
        tail = tail_of(root)
    intact = tmp_path / "intact"
    shutil.copytree(root, intact)
    store = opened(intact)
    sent = {}
    for view in records(store):
        segment = store.components.commit_log.segments.find(view.physical_offset)
        assert segment is not None
        sent[bytes(segment.file.view()[view.position : view.position + view.size])] = view
    assert delivered(store) == sent.keys()
    store.close()
    reported = 0
    for number in range(FLIPS):
        copy = tmp_path / "flipped"
        shutil.copytree(root, copy)
        view = rng.choice(tail)
        at = view.physical_offset + position_in(view, PARTS[number % 3], rng)
        with (Layout.under(copy).commit_log / offset_name(at // SEGMENT_BYTES * SEGMENT_BYTES)).open("r+b") as file:
            file.seek(at % SEGMENT_BYTES)
            byte = file.read(1)[0]
            file.seek(at % SEGMENT_BYTES)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))
        reported += not verify_store(RealDisk(), Layout.under(copy)).is_sound
        store = opened(copy)
        found = delivered(store)
        store.close()
        assert found <= sent.keys(), "a damaged message was delivered"
        block = at // BLOCK_BYTES
        for missing in sent.keys() - found:
            first, last = sent[missing].physical_offset, sent[missing].physical_offset + sent[missing].size - 1
            assert first // BLOCK_BYTES <= block <= last // BLOCK_BYTES, "an undamaged message is missing"
        shutil.rmtree(copy)
    assert reported == FLIPS
