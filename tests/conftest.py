"""Settings of the whole suite: tests marked `long` run only with `make test-long`; no example has a time limit."""

import os
import signal

import pytest
from hypothesis import settings

# An example may take long on a busy machine: only what it asserts can fail it.
settings.register_profile("ariane", deadline=None)
settings.load_profile("ariane")


def pytest_configure() -> None:
    """Where the suite runs in the background of a script, Ctrl-C is ignored, and so would the programs it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("ARIANE_LONG"):
        return
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.skip(reason="takes long: make test-long"))
