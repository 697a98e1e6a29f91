"""A broker in a process of its own that measures how long each callback holds its event loop.

The time in which the thread waited for a processor is not counted: on a busy machine it says nothing of the broker.

python -m tests.broker.slice_recorder DIRECTORY     prints its address, then answers lines of its standard input:

reset      forgets what was measured
longest    prints the longest slice since then, in seconds, and the callback
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

from ariane.broker.server import running
from ariane.clock import Clock
from tests.broker.brokers import broker_settings


class Slice(NamedTuple):
    seconds: float
    callback: str


class RecordingBroker:
    """The other end, in the process of the test."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.address = self._line()

    def reset(self) -> None:
        self._ask("reset")

    def longest(self) -> Slice:
        seconds, callback = json.loads(self._ask("longest"))
        return Slice(seconds, callback)

    def _ask(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker has ended"
        return line.strip()


@contextmanager
def recording_broker(directory: Path, **settings: Any) -> Iterator[RecordingBroker]:
    command = [sys.executable, "-m", "tests.broker.slice_recorder", str(directory), json.dumps(settings)]
    with (directory / "log").open("w") as log:
        with subprocess.Popen(  # at the end its standard input is closed
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process:
            yield RecordingBroker(process)


# --- in the broker's process ---

_SCHEDULING = Path("/proc/thread-self/schedstat")


class Recorder:
    def __init__(self) -> None:
        self.longest = Slice(0.0, "")

    def install(self) -> None:
        run = asyncio.Handle._run  # what the event loop calls for each callback

        def timed(handle: asyncio.Handle) -> None:
            began, waited = perf_counter_ns(), _waited_ns()
            run(handle)
            took = (perf_counter_ns() - began - _waited_ns() + waited) / 1e9
            if took > self.longest.seconds:
                self.longest = Slice(took, repr(handle)[:500])

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]


def _waited_ns() -> int:
    """For how long this thread was ready to run, and others had the processors."""
    return int(_SCHEDULING.read_text().split()[1])


async def _main(directory: Path, settings: dict[str, Any]) -> None:
    recorder = Recorder()
    recorder.install()
    async with running(broker_settings(directory, **settings), Clock()) as broker:
        print(broker.address, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "reset":
                recorder.longest = Slice(0.0, "")
            print(json.dumps(recorder.longest), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), json.loads(sys.argv[2])))
