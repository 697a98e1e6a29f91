"""Blocks or breaks the disk sync at the system call, so that everything above it is real."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class SyncGate:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = threading.Event()
        self._open.set()
        self._fails = False
        self._sync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._pass)

    def _pass(self, descriptor: int) -> None:
        if threading.current_thread().name == "ariane-flush":  # not where new files are made
            self._open.wait()
            if self._fails:
                raise OSError(5, "Input/output error")
        self._sync(descriptor)

    @contextmanager
    def held(self) -> Iterator[None]:
        """No sync ends while the block runs."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def fail(self) -> None:
        """Every sync fails from now on."""
        self._fails = True
