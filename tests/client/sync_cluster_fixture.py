"""A cluster for synchronous tests, on an event loop in its own thread."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.broker.brokers import running_cluster

PATIENCE_S = 40


@contextmanager
def cluster_in_a_thread(tmp_path: Path, **settings: Any) -> Iterator[str]:
    """Yields the address of its nameserver."""
    ready: Future[str] = Future()
    stop = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with running_cluster(tmp_path, auto_create_topics=True, **settings) as cluster:
            ready.set_result(cluster.nameserver)
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="cluster")
    thread.start()
    try:
        yield ready.result(PATIENCE_S)
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


def ariane_threads() -> list[threading.Thread]:
    """Threads that the synchronous API has started and that still run."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(("ariane-loop", "ariane-consume", "ariane-callback"))
    ]
