"""A broker that the tests of a file share, and the command line pointed at it."""

import logging
from collections.abc import Iterator

import pytest

from ariane.testing.broker import BrokerForTests, running_broker
from tests.cli.command_line import CommandLine
from tests.client.cluster_fixture import QUICK_LEVELS


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[BrokerForTests]:
    with running_broker(store={"message_delay_levels": QUICK_LEVELS}) as broker:
        yield broker


@pytest.fixture
def command(shared_broker: BrokerForTests) -> CommandLine:
    return CommandLine(shared_broker.namesrv)


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A server's command, run in this process, sends the log to what was stderr then, and is closed in later tests."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
    root.setLevel(level)
