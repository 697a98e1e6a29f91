"""How long a start takes: after a clean stop, after kill -9, and as after a crash of the machine.

    python -m bench.store_recovery <directory> <bytes>

As a program it is the process that gets killed: it appends to the store, says so when the log has grown by that many
bytes, and goes on appending.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from ariane.clock import Clock
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType, GiB, MiB, StoreSettings
from bench.store_setup import HOST, chunked, drafts

BODY_BYTES = 1024
GOAL_S = 2.0

_SEGMENT_BYTES = 512 * MiB  # smaller than the default: one is always made ready ahead, and disk is dear here
_UNSYNCED_BYTES = 256 * MiB
_GROWN = "grown"


def report(directory: Path, *, quick: bool) -> Iterator[str]:
    log_bytes = 512 * MiB if quick else 4 * GiB
    root = directory / "recovered"
    yield f"4. Start of a store with a log of {log_bytes / GiB:.1f} GiB, 1 KiB messages; goal: <= {GOAL_S:.0f} s"
    yield f"{'after':<34}{'log GiB':>9}{'seconds':>9}{'/ goal':>8}"
    append_and_kill(root, log_bytes)
    yield _row("kill -9 while appending", root, goal=True)
    yield _row("clean stop", root, goal=True)
    _forget_pages(root)
    yield _row("clean stop, nothing in page cache", root, goal=True)
    if quick:
        return
    append_and_kill(root, _UNSYNCED_BYTES)
    name = f"kill -9, other boot id, {_UNSYNCED_BYTES // MiB} MiB"  # no power is cut: only the path of such a start
    yield _row(name, root, goal=False, boot="another boot") + "  (walked from the checkpoint, page cache warm)"


def append_and_kill(root: Path, grow_bytes: int) -> None:
    command = [sys.executable, "-m", "bench.store_recovery", str(root), str(grow_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == _GROWN
        finally:
            process.kill()


def _row(name: str, root: Path, *, goal: bool, boot: str | None = None) -> str:
    began = time.perf_counter()
    store = MessageStore.open(_settings(root), Clock(), HOST, boot=boot)
    seconds = time.perf_counter() - began
    grown = store.components.commit_log.max_offset
    store.close()
    return f"{name:<34}{grown / GiB:>9.2f}{seconds:>9.2f}" + (f"{seconds / GOAL_S:>8.2f}" if goal else "")


def _forget_pages(root: Path) -> None:
    """A clean stop has synced them all, so the kernel can let go of them."""
    for path in filter(Path.is_file, root.rglob("*")):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _settings(root: Path) -> StoreSettings:
    return StoreSettings(root=root, segment_bytes=_SEGMENT_BYTES, flush_disk_type=FlushDiskType.ASYNC)


async def append_until_killed(root: Path, grow_bytes: int) -> None:
    """As fast as it goes, with the rounds of a running broker between the chunks."""
    async with StoreService.open(_settings(root), Clock(), HOST) as service:
        until = service.store.components.commit_log.max_offset + grow_bytes
        said = False
        for chunk in cycle(chunked(drafts(16_384, BODY_BYTES))):
            await service.append(chunk)
            await asyncio.sleep(0)
            if not said and service.store.components.commit_log.max_offset >= until:
                said = True
                print(_GROWN, flush=True)


if __name__ == "__main__":
    asyncio.run(append_until_killed(Path(sys.argv[1]), int(sys.argv[2])))
