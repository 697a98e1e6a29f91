"""A connection with many requests in one chunk takes turns with others."""

import asyncio
import time

from ariane.transport.connection import Connection
from ariane.wire.frame import Command
from tests.transport.peers import connected, request_frame, response_to, serving


async def test_requests_of_one_chunk_are_answered_over_several_turns() -> None:
    turn = 0
    turns_of_requests = set()

    def slow(connection: Connection, command: Command) -> bytes:
        turns_of_requests.add(turn)
        time.sleep(0.004)
        return response_to(command)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with serving(slow) as server, connected(server) as client:
        counting = asyncio.ensure_future(count_turns())
        await client.send(b"".join(map(request_frame, range(1, 51))))
        answers = [(await client.read()).opaque for _ in range(50)]
        counting.cancel()
    assert answers == list(range(1, 51))
    assert len(turns_of_requests) >= 10
