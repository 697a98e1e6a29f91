"""The pytest plugin: fixture `ariane_broker`. Imports nothing of Ariane until a test uses the fixture."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ariane.testing.broker import BrokerForTests


@pytest.fixture
def ariane_broker_settings() -> dict[str, Any]:
    """Settings for the broker of `ariane_broker`, by their names in BrokerSettings, and its `clock`: override this."""
    return {}


@pytest.fixture
def ariane_broker(tmp_path: Path, ariane_broker_settings: dict[str, Any]) -> "Iterator[BrokerForTests]":
    """A nameserver and an empty broker on free ports of this machine, for one test.

    Any RocketMQ client can use it, with the nameserver `ariane_broker.namesrv`. The first send to a topic creates it.
    """
    from ariane.testing.broker import running_broker

    with running_broker(tmp_path / "ariane", **ariane_broker_settings) as broker:
        yield broker
