"""Masters that send a slave what no master may: it writes none of it, says why, and serves what it has."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ariane.replication.frames import MAGIC, OFFSET_MAX, Kind, classic_frame_head, hello_bytes, native_frame_head
from ariane.replication.hello import Challenge, Welcome, master_proof, new_challenge
from ariane.replication.slave import Slave
from ariane.store.service import StoreService
from tests.replication.pairs import FILE_BYTES, Guide, a_slave, log_bytes, running_store
from tests.replication.peers import introduction
from tests.store.stores import bodies, draft, put
from tests.transport.peers import until

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def hostile(play: Play) -> AsyncIterator[str]:
    """The address of a master that does this on every connection, and then waits for its end."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await play(reader, writer)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


def classic(data: bytes) -> Play:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(data)

    return play


def native(data: bytes, welcome: Welcome | None = None) -> Play:
    """Introduces itself as it should; `data` is behind its welcome."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(MAGIC))
        hello, challenge = await introduction(reader), Challenge(challenge=new_challenge()).to_bytes()
        writer.write(hello_bytes(challenge) + hello_bytes(master_proof(None, hello, challenge)))
        await introduction(reader)
        writer.write(hello_bytes((welcome or Welcome()).to_bytes()) + data)

    return play


async def some_log(tmp_path: Path, count: int = 3) -> bytes:
    """A log as a master would send it."""
    async with running_store(tmp_path / "source") as service:
        put(service.store, *[draft(b"body %d" % number + bytes(100)) for number in range(count)])
        return log_bytes(service.store)


def frame(offset: int, body: bytes, kind: Kind = Kind.DATA, confirmed: int = 0) -> bytes:
    return native_frame_head(kind, offset, body, confirmed) + body


def reason_is(slave: Slave, text: str) -> Callable[[], bool]:
    return lambda: text in str(slave.status.reason)


BAD_FRAMES = {
    "across a file": (frame(0, bytes(FILE_BYTES)) + frame(FILE_BYTES - 4, b"12345678"), "but the log ends at"),
    "one byte too long": (frame(0, bytes(FILE_BYTES + 1)), "mappedFileSizeCommitLog"),
    "inside of a file": (frame(5, b"abc"), "do not follow its end"),
    "wrong offset": (frame(0, b"abc") + frame(4, b"d"), "sent bytes at 4, but the log ends at 3"),
    "heartbeat elsewhere": (frame(0, b"abc") + frame(9, b"", Kind.HEARTBEAT), "sent bytes at 9"),
    "giant": (struct.pack(">ib3xiqqI", 2**31 - 1, 1, 0, 0, 0, 0), "a replication frame of 2147483647 bytes"),
    "negative size": (struct.pack(">ib3xiqqI", -1, 1, 0, 0, 0, 0), "a replication frame of -1 bytes"),
    "negative offset": (struct.pack(">ib3xiqqI", 0, 1, 0, -1, 0, 0), "not an offset of a log"),
    "unknown kind": (struct.pack(">ib3xiqqI", 0, 9, 0, 0, 0, 0), "kind 9"),
    "checksum": (struct.pack(">ib3xiqqI", 3, 1, 0, 0, 0, 77) + b"abc", "does not match its checksum"),
    "goodbye": (frame(0, b"a new master is elected\n\x1b[31m", Kind.GOODBYE), "says goodbye: a new master is elected"),
    "of 4.x": (classic_frame_head(0, 60) + b"x" * 60, "does not match its checksum"),
}
BAD_CLASSIC_FRAMES = {
    "4.x, across a file": (classic_frame_head(0, FILE_BYTES + 1) + bytes(FILE_BYTES + 1), "mappedFileSizeCommitLog"),
    "4.x, wrong offset": (classic_frame_head(0, 3) + b"abc" + classic_frame_head(2, 1) + b"x", "sent bytes at 2"),
    "4.x, giant": (struct.pack(">qi", 0, 2**31 - 1), "a replication frame of 2147483647 bytes"),
    "4.x, beyond the last offset": (struct.pack(">qi", OFFSET_MAX, 1) + b"x", "not an offset of a log"),
}
CASES = [
    *[pytest.param(native(data), True, reason, id=name) for name, (data, reason) in BAD_FRAMES.items()],
    *[pytest.param(classic(data), False, reason, id=name) for name, (data, reason) in BAD_CLASSIC_FRAMES.items()],
]


@pytest.mark.parametrize(("play", "is_native", "reason"), CASES)
async def test_a_bad_frame_ends_the_connection_and_the_log_stays_as_it_was(
    tmp_path: Path, play: Play, is_native: bool, reason: str
) -> None:
    async with running_store(tmp_path / "slave") as service, hostile(play) as address:
        async with a_slave(service, Guide(address, native=is_native)) as slave:
            await until(reason_is(slave, reason))
            assert slave.log.end in (0, 3, FILE_BYTES)
    async with running_store(tmp_path / "slave"):
        pass  # it can be opened again


async def test_a_master_at_the_end_of_all_offsets_does_not_break_the_slave(tmp_path: Path) -> None:
    begin = OFFSET_MAX + 1 - FILE_BYTES
    async with running_store(tmp_path / "slave") as service, hostile(native(frame(begin, b"abc"))) as address:
        async with a_slave(service, Guide(address, native=True)) as slave:
            await until(lambda: slave.log.end == begin + 3)
    async with running_store(tmp_path / "slave"):
        pass


BAD_INTRODUCTIONS: dict[str, tuple[bytes, str]] = {
    "giant": (b"\x7f\xff\xff\xff", "an introduction of 2147483647 bytes"),
    "negative": (b"\xff\xff\xff\xff", "an introduction of -1 bytes"),
    "garbage": (hello_bytes(b"{"), "not an introduction"),
    "short challenge": (hello_bytes(b'{"challenge":"x"}'), "a challenge of 1 characters"),
    "wrong proof": (
        hello_bytes(Challenge(challenge=new_challenge()).to_bytes()) + hello_bytes(b"x"),
        "does not know our secret",
    ),
    "frames": (classic_frame_head(0, 3) + b"abc" + bytes(64), "not an introduction"),
}


@pytest.mark.parametrize(("data", "reason"), BAD_INTRODUCTIONS.values(), ids=list(BAD_INTRODUCTIONS))
async def test_a_bad_introduction_of_a_master_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    async with (
        running_store(tmp_path / "slave") as service,
        hostile(classic(data)) as address,
        a_slave(service, Guide(address, native=True)) as slave,
    ):
        await until(reason_is(slave, reason))
        assert slave.log.is_empty


async def test_a_welcome_elsewhere_is_not_followed(tmp_path: Path) -> None:
    async with running_store(tmp_path / "slave") as service:
        async with hostile(native(frame(0, b"abc"))) as address, a_slave(service, Guide(address, native=True)) as slave:
            await until(lambda: slave.log.end == 3)
        async with (
            hostile(native(b"", Welcome(begin=7))) as address,
            a_slave(service, Guide(address, native=True)) as slave,
        ):
            await until(reason_is(slave, "the master begins at 7, but the log ends at 3"))


async def test_a_master_that_never_ends_its_introduction_is_left(tmp_path: Path) -> None:
    """It sends a byte now and then, so it is never silent."""

    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\xff\0")
        while not reader.at_eof() and not writer.is_closing():
            writer.write(b"{")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with (
        running_store(tmp_path / "slave") as service,
        hostile(dribble) as address,
        a_slave(service, Guide(address, native=True), housekeeping_interval_s=1.0) as slave,
    ):
        await until(reason_is(slave, "the master has not introduced itself within 1 s"))


# --- records ----------------------------------------------------------------------------------------------------------


async def test_a_record_whose_body_does_not_match_its_checksum_is_not_served(tmp_path: Path) -> None:
    data = bytearray(await some_log(tmp_path))
    data[data.rindex(b"body 2")] ^= 1
    async with running_store(tmp_path / "slave") as service, hostile(native(frame(0, bytes(data)))) as address:
        async with a_slave(service, Guide(address, native=True)) as slave:
            await until(lambda: slave.log.end == len(data))
            await until(lambda: served(service) == 2)
            assert slave.log.dispatched_to < len(data)
        assert served(service) == 2


async def test_a_slave_whose_master_sends_what_cannot_be_serves_what_it_had(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second record says that it is number 9,999,999 of its queue."""
    data = await some_log(tmp_path, 2)
    size = struct.unpack_from(">i", data)[0]
    broken = bytearray(data)
    struct.pack_into(">q", broken, size + 20, 9_999_999)
    play = native(frame(0, data[:size]) + frame(size, bytes(broken[size:])))
    async with running_store(tmp_path / "slave") as service, hostile(play) as address:
        async with a_slave(service, Guide(address, native=True)) as slave:
            await until(reason_is(slave, "says that it is number 9999999"))
            assert slave.status.master is None
            assert served(service) == 1
        assert any("follows its master no longer" in record.message for record in caplog.records)


def served(service: StoreService) -> int:
    queue = service.store.components.queues.by_topic.get("orders")
    return 0 if queue is None else len(bodies(service.store, "orders", 0))
