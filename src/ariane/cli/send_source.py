"""Where the messages of `ariane send` come from: bodies that are given, or lines that are read."""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from ariane.cli.send_lines import lines_of
from ariane.cli.send_pace import Pace
from ariane.cli.send_shape import Shape
from ariane.client.batching import BATCH_COUNT_MAX
from ariane.clock import Clock
from ariane.model.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    shape: Shape
    bodies: tuple[bytes, ...] = ()
    """Each is a message, `count` times."""
    files: tuple[Path | int, ...] = ()
    """Paths, or open descriptors, whose lines are messages."""
    is_json: bool = False
    count: int = 1

    @property
    def total(self) -> int | None:
        """None: nobody knows before the end."""
        return None if self.files else len(self.bodies) * self.count

    async def messages(self, rate: float | None) -> AsyncGenerator[list[Message], None]:
        """As many as are there at a time, up to what one request holds; with a rate one by one."""
        pace = Pace(rate, Clock()) if rate is not None else None
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                for at in range(0, len(chunk), BATCH_COUNT_MAX if pace is None else 1):
                    if pace is not None:
                        await pace.turn()
                    yield chunk[at : at + (BATCH_COUNT_MAX if pace is None else 1)]

    async def _chunks(self) -> AsyncGenerator[list[Message], None]:
        for begin in range(0, self.count, BATCH_COUNT_MAX):
            numbers = range(begin, min(begin + BATCH_COUNT_MAX, self.count))
            yield [self._given(body, number) for number in numbers for body in self.bodies]
        for file in self.files:
            async with aclosing(self._lines(file)) as chunks:
                async for chunk in chunks:
                    yield chunk

    def _given(self, body: bytes, number: int) -> Message:
        return self.shape.numbered(body, number) if self.count > 1 else self.shape.message(body)

    async def _lines(self, file: Path | int) -> AsyncGenerator[list[Message], None]:
        """Empty lines are left out: a message has a body."""
        descriptor = file if isinstance(file, int) else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        seen = 0
        async with aclosing(lines_of(descriptor)) as chunks:
            async for lines in chunks:
                yield [self._read(line, number) for number, line in enumerate(lines, seen + 1) if line]
                seen += len(lines)

    def _read(self, line: bytes, number: int) -> Message:
        return self.shape.from_json(line, number) if self.is_json else self.shape.message(line)
