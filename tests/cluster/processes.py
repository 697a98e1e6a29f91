"""Servers as separate processes, which can be killed and paused."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

_READY = re.compile(r"ready on (\S+) ")
_START_TIMEOUT_S = 120


class ServerProcess:
    """`ariane namesrv` or `ariane broker`; `start` after `kill` runs it again with the same arguments."""

    def __init__(self, log: Path, *arguments: str, prefix: Sequence[str] = ()) -> None:
        """`prefix` is a command that runs the rest of its line, as `ip netns exec NAME`."""
        self._arguments = arguments
        self._prefix = prefix
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""

    async def start(self) -> None:
        """Again while a connection of another program has one of its ports, as it may after a kill."""
        async with asyncio.timeout(_START_TIMEOUT_S):
            while not (line := await self._started()):
                said = self._log.read_text()[-2000:]
                assert "cannot listen on" in said, f"{self._arguments} did not start:\n{said}"
                await self.kill()
                await asyncio.sleep(0.2)
        ready = _READY.search(line)
        assert ready is not None, f"{self._arguments} did not start: {line!r}"
        self.address = ready[1]

    async def _started(self) -> str:
        """Its first line; empty when it ended without one."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._prefix,
                sys.executable,
                "-m",
                "ariane",
                *self._arguments,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()

    def keep_address(self) -> None:
        """Keeps its free port for the next start, because clients look for it there."""
        listen = self._arguments.index("--listen")
        self._arguments = (*self._arguments[: listen + 1], self.address, *self._arguments[listen + 2 :])

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended, by itself or otherwise."""
        return self._process is not None and self._process.returncode is None

    def pause(self) -> None:
        """With SIGSTOP, until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """With SIGKILL."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """The exit status after SIGTERM."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(number)
        return await process.wait()


@asynccontextmanager
async def server(log: Path, *arguments: str, prefix: Sequence[str] = ()) -> AsyncIterator[ServerProcess]:
    process = ServerProcess(log, *arguments, prefix=prefix)
    try:
        await process.start()
        yield process
    finally:
        await process.kill()


def properties(path: Path, pairs: dict[str, object]) -> Path:
    """Writes a settings file in the format of Apache's broker."""
    lines: Sequence[str] = [f"{key}={value}\n" for key, value in pairs.items()]
    path.write_text("".join(lines))
    return path
