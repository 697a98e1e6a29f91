"""Running a server in the foreground: signals and the event loop."""

import asyncio
import signal
import sys
from collections.abc import Iterator

import pytest

from ariane.cli.servers import run

# A server that is asked to stop, says so, and never does.
STUBBORN = """
import asyncio
from ariane.cli.servers.run import run_server
from ariane.model.address import Address

async def serve(stop, *, ready):
    ready(Address("::1", 9876))
    await stop.wait()
    print("asked to stop", flush=True)
    await asyncio.Event().wait()

run_server("stubborn", serve)
"""


async def test_a_second_signal_exits_at_once() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", STUBBORN, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert (await process.stdout.readline()).startswith(b"ariane stubborn ready on [::1]:9876 (pid ")
            process.send_signal(signal.SIGINT)
            assert await process.stdout.readline() == b"asked to stop\n"
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 128 + signal.SIGTERM
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
def default_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("uvloop_is_there", [True, False])
def test_it_runs_with_uvloop_or_without(monkeypatch: pytest.MonkeyPatch, uvloop_is_there: bool) -> None:
    loops: list[str] = []

    async def serve(stop: asyncio.Event, *, ready: object) -> None:
        loops.append(type(asyncio.get_running_loop()).__module__.partition(".")[0])
        signal.raise_signal(signal.SIGTERM)
        await stop.wait()

    if not uvloop_is_there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    run.run_server("test", serve)
    assert loops == ["uvloop" if uvloop_is_there else "asyncio"]
