"""Lines of stdin or of a file, as they come."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import CancelledError

from ariane.errors import MessageRejected

_CHUNK_BYTES = 64 * 1024
_AHEAD_MAX = 8
LINE_BYTES_MAX = 16 * 1024 * 1024


async def lines_of(descriptor: int) -> AsyncGenerator[list[bytes], None]:
    """Whole lines without their ends, as many as have come; the last one may lack its end.

    A thread reads, so that a terminal or a slow pipe holds up nothing that is under way. It is a daemon: a read that
    never ends does not keep the process from leaving.
    """
    chunks: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD_MAX)
    reader = threading.Thread(target=_read, args=(descriptor, asyncio.get_running_loop(), chunks), daemon=True)
    reader.start()
    rest = b""
    while chunk := await chunks.get():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise MessageRejected(f"a line has more than {LINE_BYTES_MAX} bytes: send it with --file, or split it")
        yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def _read(descriptor: int, loop: asyncio.AbstractEventLoop, chunks: "asyncio.Queue[bytes]") -> None:
    """Ends with an empty chunk, as files do."""
    chunk = b"begin"
    while chunk:
        try:
            chunk = os.read(descriptor, _CHUNK_BYTES)
        except OSError:  # a terminal that was hung up
            chunk = b""
        try:
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
        except (RuntimeError, CancelledError):  # nobody reads any more
            return
