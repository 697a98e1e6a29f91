"""What every test of the store ends with."""

from collections.abc import Iterator

import pytest

from tests.store.queues import close_queues


@pytest.fixture(autouse=True)
def _queues_are_closed() -> Iterator[None]:
    yield
    close_queues()
