"""The C++ client finds a route at the nameserver and sends to the broker that it names."""

import asyncio
import importlib.util
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ariane.model.ids import QueueOffset
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import Call, HandlerTable, handles
from ariane.wire.codes import Language
from ariane.wire.requests.send import SendMessage, SendResponse
from tests.nameserver.servers import caller, nameserver, registration
from tests.transport.peers import serving

CPP_PRODUCER = Path(__file__).parent.parent / "clients" / "cpp_producer.py"


@dataclass
class StubBroker:
    """A minimal broker for a single send: it acknowledges the message and keeps it for the test."""

    received: list[tuple[str, bytes, Language]] = field(default_factory=list)

    @handles(SendMessage)
    def send(self, request: SendMessage, call: Call) -> SendResponse:
        self.received.append((request.topic, request.body, call.command.language_code))
        return SendResponse(
            msg_id="7F00000100002A9F0000000000000000", queue_id=request.queue_id, queue_offset=QueueOffset(42)
        )


@pytest.mark.skipif(importlib.util.find_spec("rocketmq") is None, reason="the C++ client's wheel is for Linux x86-64")
async def test_the_cpp_client_follows_our_route(tmp_path: Path) -> None:
    stub = StubBroker()
    async with (
        nameserver() as name_server,
        caller() as broker,
        serving(Dispatcher(HandlerTable.of(stub)).receive) as broker_port,
    ):
        await broker.call(name_server, registration("orders", address=str(broker_port.address)))
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(CPP_PRODUCER), name_server, "orders", "hello",
            stdout=asyncio.subprocess.PIPE, env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
        async with asyncio.timeout(60):
            printed, _ = await process.communicate()
    assert stub.received == [("orders", b"hello", Language.CPP)]
    assert printed.split() == [b"0", b"42"]
    assert process.returncode == 0
