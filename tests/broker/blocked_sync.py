"""Blocks or breaks the disk sync at the system call, so that everything above it is real."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

FLUSH_THREAD, EVENT_LOOP = "ariane-flush", "MainThread"


class SyncGate:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = threading.Event()
        self._open.set()
        self._failing = ""
        self.syncers: list[str] = []
        """The thread of each sync of these two; the others make new files ready."""
        self._sync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._pass)

    def _pass(self, descriptor: int) -> None:
        name = threading.current_thread().name
        if name in (FLUSH_THREAD, EVENT_LOOP):
            self.syncers.append(name)
            if name == FLUSH_THREAD:
                self._open.wait()
            if name == self._failing:
                raise OSError(5, "Input/output error")
        self._sync(descriptor)

    @contextmanager
    def held(self) -> Iterator[None]:
        """No sync by the thread ends while the block runs."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def fail(self, thread: str = FLUSH_THREAD) -> None:
        """Every sync by this thread fails from now on."""
        self._failing = thread
