"""A store whose bytes are not in the page cache, and a monitor of a thread that must not wait for them.

The kernel counts per thread the blocks read from disk (`ru_inblock`) and the page faults that needed a read
(`ru_majflt`). Two effects would distort the count and are eliminated:

* Read-ahead: a thread that finds its bytes in memory may trigger a read of the following bytes without waiting. All
  files are opened for random access, which also prevents lucky hits.
* Checking whether bytes are in memory (`read_cached`) does not wait, but the kernel takes it as a hint and starts a
  read; a fast disk may even finish before the check returns. That read is not counted, and the check returns "not in
  memory". Then the bytes are evicted again, so that code which reads them in spite of that is detected.
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
    """Disk reads of the thread that created it."""

    blocks: int = 0
    """Units of 512 bytes that this thread read from disk."""
    faults: int = 0
    misses: int = 0
    """How often a check returned that bytes are not in memory."""


def read_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opens all files for random access from now on."""
    original = RealFile.__init__

    def opened(self: RealFile, descriptor: int, size: int) -> None:
        original(self, descriptor, size)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    monkeypatch.setattr(RealFile, "__init__", opened)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    watch, thread, probe_blocks = Watch(), threading.get_ident(), 0
    original = RealFile.read_cached

    def read_cached(self: RealFile, length: int, position: int) -> bytes | None:
        nonlocal probe_blocks
        if threading.get_ident() != thread:
            return original(self, length, position)
        before, _ = _counted()
        found = original(self, length, position)
        read = _counted()[0] - before
        if found is not None and not read:
            return found
        probe_blocks += read
        watch.misses += 1
        in_a_thread(partial(_forget_again, self.descriptor))
        return None

    monkeypatch.setattr(RealFile, "read_cached", read_cached)
    blocks, faults = _counted()
    try:
        yield watch
    finally:
        blocks_now, faults_now = _counted()
        watch.blocks, watch.faults = blocks_now - blocks - probe_blocks, faults_now - faults
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
    """Whether this file system evicts pages on request: an in-memory one does not."""
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
