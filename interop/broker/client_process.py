"""A child process that executes commands read from its standard input: clients of other vendors, and mqadmin.

A line is URL-encoded form data: id=7&do=send&topic=orders&body=hello. The response has the same id; an event has none.
"""

import asyncio
import contextlib
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from interop.broker.client import WAIT_S, Delivery, Inbox, NotOffered
from interop.processes import InteropError, tail
from interop.report import CheckFailed

LINE_BYTES_MAX = 16 << 20
STOP_SECONDS = 15.0


@dataclass(slots=True)
class ClientProcess:
    name: str
    process: Process
    inboxes: dict[str, Inbox] = field(default_factory=dict)
    pending: dict[str, asyncio.Future[dict[str, str]]] = field(default_factory=dict)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    requests: int = 0
    ended: bool = False

    async def call(self, verb: str, **fields: object) -> Mapping[str, str]:
        response = await self.request(
            {"do": verb} | {name.replace("__", "."): str(value) for name, value in fields.items()}
        )
        if "not_offered" in response:
            raise NotOffered(response["not_offered"])
        if "error" in response:
            raise CheckFailed(f"{self.name} could not {verb}: {response['error'][:1000]}")
        return response

    async def request(self, fields: Mapping[str, str]) -> dict[str, str]:
        if self.ended:
            raise CheckFailed(f"{self.name} has exited, see its log")
        self.requests += 1
        number = str(self.requests)
        self.pending[number] = asyncio.get_running_loop().create_future()
        assert self.process.stdin is not None
        self.process.stdin.write(urlencode({"id": number, **fields}).encode() + b"\n")
        try:
            async with asyncio.timeout(WAIT_S):
                return await self.pending[number]
        except TimeoutError:
            raise CheckFailed(f"{self.name} did not answer {fields} within {WAIT_S:.0f} s") from None
        finally:
            del self.pending[number]

    def inbox(self, name: str) -> Inbox:
        return self.inboxes.setdefault(name, Inbox())

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for text in self.process.stdout:
            line = dict(parse_qsl(text.decode().strip(), keep_blank_values=True))
            if "event" in line:
                await self._handle_event(line)
            elif (waiter := self.pending.get(line.get("id", ""))) is not None and not waiter.done():
                waiter.set_result(line)
        self.ended = True
        for waiter in self.pending.values():
            if not waiter.done():
                waiter.set_result({"error": "the program has exited"})

    async def _handle_event(self, line: dict[str, str]) -> None:
        if line["event"] == "ready":
            self.ready.set()
        else:
            await self.inbox(line["inbox"]).add(_delivery(line))


@asynccontextmanager
async def client_process(
    name: str,
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> AsyncIterator[ClientProcess]:
    """Runs the process for the length of the block and waits until it is ready; its standard error goes to `log`."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=errors, env=environment, cwd=directory, limit=LINE_BYTES_MAX
        )
    client = ClientProcess(name, process)
    listener = asyncio.create_task(client.listen())
    try:
        try:
            await asyncio.wait_for(client.ready.wait(), WAIT_S)
        except TimeoutError:
            raise InteropError(f"{name} did not get ready, see {log}:\n{tail(log)}") from None
        yield client
    finally:
        await _stop(process)
        await listener


async def _stop(process: Process) -> None:
    """Closing its standard input asks the process to exit."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    if process.returncode is None:
        process.kill()
        await process.wait()


def _delivery(line: Mapping[str, str]) -> Delivery:
    return Delivery(
        body=line["body"],
        at_s=time.time(),
        tags=line.get("tags", ""),
        keys=line.get("keys", ""),
        message_id=line.get("message_id", ""),
        queue_id=int(line.get("queue_id", 0)),
        queue_offset=int(line.get("queue_offset", 0)),
        attempt=int(line.get("attempt", 1)),
    )
