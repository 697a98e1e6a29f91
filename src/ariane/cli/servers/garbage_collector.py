"""The garbage collector in a server's process: it has nothing to find before the server is ready, and little after."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_asleep() -> Iterator[None]:
    """From the first import on; `wake_collector` ends it when the server is ready.

    A start makes eighty thousand objects, of which less than a thousand are garbage. To look for those, over and over
    while they become more, would be a tenth of the time until ready.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def wake_collector() -> None:
    """What is there at the start stays until the end: the collector need not look at it over and over.

    Messages on their way in and out make no cycles (their structs are not even known to the collector), so it may come
    less often than for each 700 new objects. Only for a process that is a server and nothing else.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()
