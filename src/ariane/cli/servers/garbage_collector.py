"""Settings of Python's garbage collector in a server process: off during start-up, rare afterwards."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_disabled() -> Iterator[None]:
    """From the first import on; `enable_collector` ends it when the server is ready.

    Start-up creates 80,000 objects, fewer than 1,000 of which are garbage. The collections would take a tenth of the
    start-up time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def enable_collector() -> None:
    """Freezes the objects of start-up: they live until the end, so the collector need not examine them again.

    Messages create no reference cycles (the collector does not even track their structs), so collections can be rarer
    than one for every 700 new objects. Only for a process that runs nothing but a server.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()
