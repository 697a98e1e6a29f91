"""A broker on a file system without a free byte: killed there, it starts again, and has what it acknowledged."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from ariane.model.ids import QueueOffset
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.offsets import GetConsumerOffset, GetMaxOffset, UpdateConsumerOffset
from tests.broker.consumer_group_fixtures import RawGroupClient
from tests.store.test_full_disk import ballast, mounted
from tests.transport.peers import RawClient

ROOT = Path(__file__).parents[2]
DISK_BYTES = 32 * 1024 * 1024
MESSAGES = 500
CHILD = f"""
import asyncio, sys
from pathlib import Path
from ariane.model.topic import TopicConfig
from tests.broker.brokers import running_broker
from tests.store.stores import draft

async def main():
    store = {{"clean_interval_ms": 200, "reserve_bytes": 8 * 1024 * 1024, "refuse_writes_ratio": 1.0,
              "disk_max_used_ratio": 1.0, "force_clean_ratio": 1.0, "segment_bytes": 4 * 1024 * 1024}}
    async with running_broker(Path(sys.argv[1]), store=store) as broker:
        if broker.parts.topics.get("orders") is None:
            broker.parts.topics.put(TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1))
            await broker.parts.topics.saved()
            await broker.parts.store.append([draft(b"x" * 100, key=f"k{{n}}") for n in range({MESSAGES})])
        print("at", broker.address, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            (outcome,) = await broker.parts.store.append([draft(b"more")])
            print("append", type(outcome).__name__, outcome, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, DISK_BYTES) as path:
        yield path


class Child:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def line(self, start: str) -> str:
        """The next line of its output that begins so; the log is between."""
        assert self.process.stdout is not None
        output = []
        for line in self.process.stdout:
            output.append(line)
            if line.startswith(start):
                return line
        raise AssertionError("".join(output))

    def append(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.line("append")


@contextmanager
def broker(disk: Path) -> Iterator[Child]:
    """Killed at the end, as by kill -9."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(disk)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


@asynccontextmanager
async def client(address: str) -> AsyncIterator[RawGroupClient]:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield RawGroupClient(RawClient(reader, writer))
    finally:
        writer.close()


@pytest.mark.parametrize("is_reserve_gone", [False, True])
async def test_what_was_acknowledged_without_a_free_byte_is_there_after_a_kill(
    disk: Path, is_reserve_gone: bool
) -> None:
    acknowledged = 0
    with broker(disk) as child:
        async with client(child.line("at").split()[1]) as connection:
            await connection.call(UpdateConsumerOffset("billing", "orders", 0, QueueOffset(1)))
            filled = ballast(disk)
            for offset in range(2, MESSAGES):
                request = UpdateConsumerOffset("billing", "orders", 0, QueueOffset(offset))
                if (await connection.send_request(request)).code == ResponseCode.SUCCESS:
                    acknowledged = offset
    more = [ballast(disk, "more")] if is_reserve_gone else []  # others may take what the reserve was
    with broker(disk) as child:
        async with client(child.line("at").split()[1]) as connection:
            assert (await connection.call(GetConsumerOffset("billing", "orders", 0))).offset >= acknowledged
            assert (await connection.call(GetMaxOffset("orders", 0))).offset == MESSAGES
        refused = child.append()
        assert refused.startswith("append StoreFull")
        assert f"the file system at {disk}" in refused
        assert not (disk / "store" / "reserve").exists()
        for path in (filled, *more):
            path.unlink()
        for _ in range(100):
            if (outcome := child.append()).startswith("append Appended"):
                break
            await asyncio.sleep(0.1)
        assert outcome.startswith("append Appended")
        assert (disk / "store" / "reserve").exists()
    assert acknowledged > 1
