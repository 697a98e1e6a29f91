"""kill -9 at any moment, again and again on the same store: nothing acknowledged is lost, nothing else appears.

`ARIANE_KILLS` says how often.
"""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ariane.clock import Clock
from ariane.store.disk import RealDisk
from ariane.store.message_store import MessageStore
from ariane.store.settings import FlushDiskType
from tests.store.block_checksums import check_block_checksums, is_covered
from tests.store.stores import HOST
from tests.store.writer import settings_of, survivors

KILLS = int(os.environ.get("ARIANE_KILLS", "50"))
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
