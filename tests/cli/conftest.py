"""A broker that the tests of a file share, and the command line pointed at it."""

from collections.abc import Iterator

import pytest

from ariane.testing.broker_fixture import BrokerForTests, running_broker
from tests.cli.command_line import CommandLine
from tests.client.ground import QUICK_LEVELS


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[BrokerForTests]:
    with running_broker(store={"message_delay_levels": QUICK_LEVELS}) as broker:
        yield broker


@pytest.fixture
def command(shared_broker: BrokerForTests) -> CommandLine:
    return CommandLine(shared_broker.namesrv)
