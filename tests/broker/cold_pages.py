"""A store whose bytes have left the page cache, and a watch over a thread that must not wait for them.

The kernel counts for each thread what it read from the disk (`ru_inblock`) and its page faults that had to
(`ru_majflt`). Two things would blur the count, and are taken out:

* Reading ahead: a thread that finds its bytes in memory may begin to read those behind them, without a wait. All files
  are opened as ones that are read at random, so nobody is helped by luck either.
* Asking whether bytes are in memory (`read_cached`) is no wait, but the kernel takes it as a hint and begins to read; a
  fast disk may even be done before the question is answered. That is left out of the count, and the answer is no. Then
  the bytes are forgotten again: who asks and looks at them all the same is found out.
"""

import mmap
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from ariane.store.disk import RealFile
from ariane.store.message_store import MessageStore

PAGE = mmap.PAGESIZE


@dataclass
class Watch:
    """Of the thread that made it."""

    blocks: int = 0
    """Read from the disk by this thread, in units of 512 bytes, while it was watched."""
    faults: int = 0
    misses: int = 0
    """How often it was told that bytes are not in memory."""


def read_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on files are opened so."""
    original = RealFile.__init__

    def opened(self: RealFile, descriptor: int, size: int) -> None:
        original(self, descriptor, size)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    monkeypatch.setattr(RealFile, "__init__", opened)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    watch, thread, asked = Watch(), threading.get_ident(), 0
    original = RealFile.read_cached

    def read_cached(self: RealFile, length: int, position: int) -> bytes | None:
        nonlocal asked
        if threading.get_ident() != thread:
            return original(self, length, position)
        before, _ = _counted()
        found = original(self, length, position)
        read = _counted()[0] - before
        if found is not None and not read:
            return found
        asked += read
        watch.misses += 1
        in_a_thread(partial(_forget_again, self.descriptor))
        return None

    monkeypatch.setattr(RealFile, "read_cached", read_cached)
    blocks, faults = _counted()
    try:
        yield watch
    finally:
        blocks_now, faults_now = _counted()
        watch.blocks, watch.faults = blocks_now - blocks - asked, faults_now - faults
        monkeypatch.setattr(RealFile, "read_cached", original)


def forget(store: MessageStore) -> None:
    """Takes the bytes of log, queues and index from the page cache, but for the page that the next append writes to."""
    log = store.components.commit_log
    for _ in range(2):  # what was written since the checkpoint before the last is taken to be in memory
        store.make_durable()
    for segment in log.segments:
        _forget_mapping(segment.file)
        forget_file(segment.path, log.max_offset - segment.base)
    for queue in store.components.queues:
        for base in range(queue._files.base, queue._files.end, queue._files.segment_bytes):
            forget_file(Path(queue._files.path(base)))
    for file in store.components.index._directory.files if store.components.index is not None else []:
        if file._map is not None:
            _let_go(file._map)
        forget_file(file.path)


def can_be_forgotten(path: Path) -> bool:
    """Whether this file system lets go of what it is asked to: one in memory does not."""
    path.write_bytes(os.urandom(16 * PAGE))
    forget_file(path, 16 * PAGE)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        before, _ = _counted()
        os.pread(descriptor, PAGE, 8 * PAGE)
        return _counted()[0] > before
    finally:
        os.close(descriptor)


def _counted() -> tuple[int, int]:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_inblock, usage.ru_majflt


def in_a_thread(work: Callable[[], None]) -> None:
    helper = threading.Thread(target=work)
    helper.start()
    helper.join()


def _forget_again(descriptor: int) -> None:
    """What the kernel has begun to read has to arrive before it can be dropped."""
    size = os.fstat(descriptor).st_size
    os.pread(descriptor, size, 0)
    os.posix_fadvise(descriptor, 0, size - size % PAGE, os.POSIX_FADV_DONTNEED)


def _forget_mapping(file: object) -> None:
    """A page that is mapped stays in the cache."""
    assert isinstance(file, RealFile)
    if file._view is not None:
        _let_go(file._view)


def _let_go(view: memoryview) -> None:
    mapped = view.obj
    assert isinstance(mapped, mmap.mmap)
    mapped.madvise(mmap.MADV_DONTNEED)


def forget_file(path: Path, end: int | None = None) -> None:
    """Up to the last whole page before `end`; all of it without one."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        size = os.fstat(descriptor).st_size
        whole_pages = 0 if end is None else max(0, min(end, size)) // PAGE * PAGE
        if end is None or whole_pages:
            os.posix_fadvise(descriptor, 0, whole_pages, os.POSIX_FADV_DONTNEED)  # 0: to the end of the file
    finally:
        os.close(descriptor)
