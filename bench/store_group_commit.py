"""Acknowledged appends with SYNC_FLUSH: how many share a sync, and how long they wait, beside the disk's own rate."""

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop

from ariane.clock import Clock
from ariane.store.append.draft import Draft
from ariane.store.disk import RealDisk
from ariane.store.service import StoreService
from ariane.store.settings import MiB, StoreSettings
from bench.store_setup import HOST, drafts

WAITERS = (1, 16, 128)
BODY_BYTES = 1024

_FILE_BYTES = 256 * MiB


@dataclass(frozen=True)
class Sample:
    per_second: float
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, waits_s: list[float], elapsed_s: float) -> "Sample":
        waits_s.sort()
        median, high = waits_s[len(waits_s) // 2], waits_s[len(waits_s) * 99 // 100]
        return cls(len(waits_s) / elapsed_s, median * 1000, high * 1000)

    def row(self, name: str) -> str:
        return f"{name:<30}{self.per_second:>12,.0f}{self.p50_ms:>9.2f}{self.p99_ms:>9.2f}"


def report(directory: Path, *, quick: bool) -> Iterator[str]:
    seconds = 0.7 if quick else 5.0
    plain: list[Sample] = []
    ours: dict[int, Sample] = {}
    for waiters in WAITERS:
        plain.append(_plain(directory / f"plain-{waiters}", seconds))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as servers run
            ours[waiters] = runner.run(_measure(directory / f"store-{waiters}", waiters, seconds))
    own_rate = statistics.median(sample.per_second for sample in plain)
    yield "2. Group commit, 1 KiB, SYNC_FLUSH: one message an append, each waits until it is durable"
    yield f"{'':<30}{'acks/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'/ disk':>9}"
    for sample in plain:
        yield sample.row("pwrite + fdatasync")
    for waiters, sample in ours.items():
        yield sample.row(f"store, {waiters} waiting") + f"{sample.per_second / own_rate:>9.2f}"


def _plain(path: Path, seconds: float) -> Sample:
    """One writer, one file whose blocks are taken, no store."""
    file = RealDisk().create(path, _FILE_BYTES, allocated=_FILE_BYTES)
    os.fsync(file.descriptor)
    body, position, waits = bytes(BODY_BYTES), 0, []
    began = before = time.perf_counter()
    while before - began < seconds:
        os.pwrite(file.descriptor, body, position % _FILE_BYTES)
        os.fdatasync(file.descriptor)
        position += BODY_BYTES
        now = time.perf_counter()
        waits.append(now - before)
        before = now
    file.close()
    return Sample.of(waits, before - began)


async def _measure(root: Path, waiters: int, seconds: float) -> Sample:
    settings = StoreSettings(root=root, segment_bytes=_FILE_BYTES)
    async with StoreService.open(settings, Clock(), HOST) as service:
        messages = drafts(waiters, BODY_BYTES)
        await asyncio.gather(*(service.append([draft]) for draft in messages))  # queues, files, index: made
        waits: list[float] = []
        began = time.perf_counter()
        await asyncio.gather(*(_append_until(service, draft, began + seconds, waits) for draft in messages))
        return Sample.of(waits, time.perf_counter() - began)


async def _append_until(service: StoreService, draft: Draft, deadline: float, waits: list[float]) -> None:
    while (before := time.perf_counter()) < deadline:
        await service.append([draft])
        waits.append(time.perf_counter() - before)
