"""The synchronous API, for programs without an event loop: the names of `ariane`, without `await`.

    from ariane.sync import Producer, PushConsumer

    with Producer("127.0.0.1:9876", group="orders") as producer:
        producer.send("orders", b"...")

An event loop runs in a background thread while a client is open. Handlers, callbacks and listeners run in other
threads, so they may block, and may use any client; only a queue selector runs on the event loop and must be quick. A
local transaction runs in the thread that sends. Clients that are still open when the program ends are closed then. Type
checkers read `sync.pyi`, which scripts/stubs.py generates from the asynchronous classes.
"""

import ariane
from ariane.client.sync import sync_wrapper

__all__ = list(ariane.__all__)

_WRAPPED = {
    "Admin",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PullContext",
    "PushConsumer",
    "ScheduledPullConsumer",
    "TransactionProducer",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'ariane.sync' has no attribute {name!r}")
    value: object = getattr(ariane, name)
    if name in _WRAPPED and isinstance(value, type):
        inner_classes = [ariane.PullContext] if name == "ScheduledPullConsumer" else []
        value = sync_wrapper(value, inner_classes)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
