"""A program in another language that does what a line of text tells it: the clients of other makers, and mqadmin.

A line is a web form: id=7&do=send&topic=orders&body=hello. The answer has the same id; a line with an event has none.
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

from interop.broker.client import WAIT_S, Inbox, NotOffered, Seen
from interop.processes import InteropError, tail
from interop.report import CheckFailed

LINE_BYTES_MAX = 16 << 20
STOP_SECONDS = 15.0


@dataclass(slots=True)
class Guest:
    name: str
    process: Process
    inboxes: dict[str, Inbox] = field(default_factory=dict)
    waiting: dict[str, asyncio.Future[dict[str, str]]] = field(default_factory=dict)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0
    ended: bool = False

    async def call(self, verb: str, **fields: object) -> Mapping[str, str]:
        response = await self.ask(
            {"do": verb} | {name.replace("__", "."): str(value) for name, value in fields.items()}
        )
        if "not_offered" in response:
            raise NotOffered(response["not_offered"])
        if "error" in response:
            raise CheckFailed(f"{self.name} could not {verb}: {response['error'][:1000]}")
        return response

    async def ask(self, fields: Mapping[str, str]) -> dict[str, str]:
        if self.ended:
            raise CheckFailed(f"{self.name} has ended, see its log")
        self.asked += 1
        number = str(self.asked)
        self.waiting[number] = asyncio.get_running_loop().create_future()
        assert self.process.stdin is not None
        self.process.stdin.write(urlencode({"id": number, **fields}).encode() + b"\n")
        try:
            async with asyncio.timeout(WAIT_S):
                return await self.waiting[number]
        except TimeoutError:
            raise CheckFailed(f"{self.name} did not answer {fields} within {WAIT_S:.0f} s") from None
        finally:
            del self.waiting[number]

    def inbox(self, name: str) -> Inbox:
        return self.inboxes.setdefault(name, Inbox())

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for text in self.process.stdout:
            line = dict(parse_qsl(text.decode().strip(), keep_blank_values=True))
            if "event" in line:
                await self._note(line)
            elif (waiter := self.waiting.get(line.get("id", ""))) is not None and not waiter.done():
                waiter.set_result(line)
        self.ended = True
        for waiter in self.waiting.values():
            if not waiter.done():
                waiter.set_result({"error": "the program has ended"})

    async def _note(self, line: dict[str, str]) -> None:
        if line["event"] == "ready":
            self.ready.set()
        else:
            await self.inbox(line["inbox"]).add(_seen(line))


@asynccontextmanager
async def invited(
    name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Guest]:
    """The guest, ready, for the length of the block. What it prints besides is in `log`."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=errors, env=environment, limit=LINE_BYTES_MAX
        )
    guest = Guest(name, process)
    listener = asyncio.create_task(guest.listen())
    try:
        try:
            await asyncio.wait_for(guest.ready.wait(), WAIT_S)
        except TimeoutError:
            raise InteropError(f"{name} never got ready, see {log}:\n{tail(log)}") from None
        yield guest
    finally:
        await _see_off(process)
        await listener


async def _see_off(process: Process) -> None:
    """The end of its input tells a guest to leave."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    if process.returncode is None:
        process.kill()
        await process.wait()


def _seen(line: Mapping[str, str]) -> Seen:
    return Seen(
        body=line["body"],
        at_s=time.time(),
        tags=line.get("tags", ""),
        keys=line.get("keys", ""),
        message_id=line.get("message_id", ""),
        queue_id=int(line.get("queue_id", 0)),
        queue_offset=int(line.get("queue_offset", 0)),
        attempt=int(line.get("attempt", 1)),
    )
