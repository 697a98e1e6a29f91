"""Apache's C++ client, which comes as a wheel, sends to our broker and consumes from it.

The checks are those that `make interop` runs with the clients for Java and Go, so they are known to hold for Apache's
own broker.
"""

import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interop.broker.check_context import CheckContext, safe_name
from interop.broker.client_process import client_process
from interop.broker.kinds import KINDS
from interop.broker.servers import Servers, our_servers
from tests.nameserver.servers import caller

CLIENT = Path(__file__).parent.parent / "clients" / "cpp_client.py"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("rocketmq") is None, reason="the C++ client's wheel is for Linux x86-64"
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with our_servers(tmp_path_factory.mktemp("servers") / "ariane") as started:
        yield started


@asynccontextmanager
async def context(servers: Servers, kind: str, home: Path) -> AsyncIterator[CheckContext]:
    environment = {**os.environ, "HOME": str(home)}
    command = [sys.executable, str(CLIENT), servers.nameserver]
    async with caller() as rpc, client_process("C++", command, home / "client.log", environment) as process:
        yield CheckContext(process, servers, None, rpc, safe_name(kind))


# No batch: this client marks one with a number where brokers look for a word, and Apache's stores it as one message,
# too. No dead letters: it cannot say after how many attempts, so that would take sixteen.
@pytest.mark.parametrize(
    "kind",
    [
        "send and wait",
        "send with callback",
        "send one-way",
        "compressed body",
        "ordered",
        "delay level",
        "tag filter",
        "broadcast",
        "two members share the queues",
        "retry",
        "pull consumer",
    ],
)
async def test_the_cpp_client_and_our_broker_agree_on(kind: str, servers: Servers, tmp_path: Path) -> None:
    async with context(servers, kind, tmp_path) as ready:
        await KINDS[kind](ready)
