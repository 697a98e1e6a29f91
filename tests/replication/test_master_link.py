"""A slave with the recorded streams of Apache's master: its log and its reports are those of Apache's slave."""

import asyncio
import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ariane.errors import FrameError, StoreMismatch
from ariane.replication.frames import classic_frame_head, classic_report
from ariane.replication.master_link import MasterLink, SlaveStream
from ariane.replication.settings import ReplicationSettings
from ariane.store.following import FollowingLog
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.replication.golden_ha import FILE_BYTES, Recording, recording
from tests.replication.pairs import Guide, a_slave, log_bytes, running_store
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import opened, records
from tests.transport.peers import until


def a_log(disk: SimulatedDisk | None = None, file_bytes: int = FILE_BYTES) -> tuple[MessageStore, FollowingLog]:
    store = opened(disk or SimulatedDisk(FakeClock()), segment_bytes=file_bytes, queue_segment_bytes=20_000)
    return store, FollowingLog(store)


def receive(stream: SlaveStream, data: bytes, sizes: list[int]) -> list[bytes]:
    """What the slave reports when the bytes come in pieces of these sizes."""
    reports, at, number = [], 0, 0
    while at < len(data):
        size = sizes[number % len(sizes)]
        room = stream.decoder.get_buffer()
        piece = data[at : at + min(size, len(room))]
        room[: len(piece)] = piece
        stream.decoder.buffer_updated(len(piece))
        at, number = at + len(piece), number + 1
        if stream.received():
            reports.append(stream.report())
    return reports


def reports_of_frames(golden: Recording) -> list[bytes]:
    """Apache's slave reports after each frame that has a body; the rest of its reports are repetitions."""
    return [classic_report(offset + len(body)) for offset, body in golden.frames if body]


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=25)
@given(sizes=st.lists(st.integers(1, 40_000), min_size=1, max_size=10))
def test_the_recorded_streams_give_the_log_of_apaches_slave_in_any_cut(sizes: list[int]) -> None:
    fresh, resume = recording("ha-fresh"), recording("ha-resume")
    store, following = a_log()
    reports: list[bytes] = []
    for golden in (fresh, resume):
        stream = SlaveStream(following, native=False)
        assert stream.report() == classic_report(golden.facts["first_report"])
        reports += receive(stream, golden.to_slave, sizes)
        assert stream.report() == classic_report(golden.facts["last_report"])
        following.run_dry()
        assert following.dispatched_to == golden.facts["end_offset"]
    assert set(reports) <= {*reports_of_frames(fresh), *reports_of_frames(resume)}
    assert log_bytes(store) == fresh.log + resume.log
    assert hashlib.sha256(log_bytes(store)[: fresh.facts["end_offset"]]).hexdigest() == fresh.facts["sha256"]
    assert sum(1 for _ in records(store)) == fresh.facts["records"] + resume.facts["records"]


@pytest.mark.parametrize("name", ["ha-fresh", "ha-resume"])
def test_frame_by_frame_the_reports_are_those_that_were_recorded(name: str) -> None:
    golden = recording(name)
    _, following = a_log()
    if name == "ha-resume":
        receive(SlaveStream(following, native=False), recording("ha-fresh").to_slave, [50_000])
    stream = SlaveStream(following, native=False)
    reports = [stream.report()]
    for offset, body in golden.frames:
        reports += receive(stream, classic_frame_head(offset, len(body)) + body, [100_000])
    assert reports == [classic_report(golden.reports[0]), *reports_of_frames(golden)]
    distinct = sorted({classic_report(end) for end in golden.reports})
    assert sorted(set(reports)) == distinct


def test_a_frame_that_does_not_follow_the_log_is_refused() -> None:
    _, following = a_log()
    stream = SlaveStream(following, native=False)
    receive(stream, classic_frame_head(0, 3) + b"abc", [100])
    for frame in (classic_frame_head(4, 1) + b"x", classic_frame_head(9, 0)):
        with pytest.raises(FrameError, match="but the log ends at 3"):
            receive(SlaveStream(following, native=False), frame, [100])
    assert following.end == 3


def test_a_frame_across_the_end_of_a_file_is_refused_with_the_reason() -> None:
    _, following = a_log(file_bytes=8192)
    with pytest.raises(StoreMismatch, match="mappedFileSizeCommitLog"):
        receive(SlaveStream(following, native=False), classic_frame_head(0, 8193) + bytes(8193), [100_000])


def test_a_heartbeat_changes_nothing() -> None:
    _, following = a_log()
    assert receive(SlaveStream(following, native=False), classic_frame_head(262_144, 0), [5]) == []
    assert following.is_empty


# --- over a socket ----------------------------------------------------------------------------------------------------


async def test_a_slave_reports_at_once_and_follows_a_recorded_master(tmp_path: Path) -> None:
    golden, received = recording("ha-fresh"), bytearray()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.readexactly(8))
        writer.write(golden.to_slave)
        while data := await reader.read(4096):
            received.extend(data)
        writer.close()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    async with server, running_store(tmp_path / "slave") as service:
        port = server.sockets[0].getsockname()[1]
        async with a_slave(service, Guide(f"127.0.0.1:{port}", native=False)) as slave:
            await until(lambda: slave.log.dispatched_to == golden.facts["end_offset"])
            assert log_bytes(service.store) == golden.log
            await until(lambda: received.endswith(classic_report(golden.facts["last_report"])))
            assert received.startswith(classic_report(0))


async def test_a_master_that_falls_silent_is_given_up(tmp_path: Path) -> None:
    connections: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: connections.append(writer), "127.0.0.1", 0)
    async with server, running_store(tmp_path / "slave") as service:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        find = Guide(address, native=False)
        async with a_slave(service, find, heartbeat_interval_s=0.02, housekeeping_interval_s=0.1):
            await until(lambda: len(connections) >= 2)
        for writer in connections:
            writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes(8) + b"\x7f\xff\xff\xff",
        b"\xff" * 64,
        bytes(8) + b"\0\0\0\5abcde" + b"\x99" * 20,
    ],
    ids=["http", "giant", "negative", "then garbage"],
)
@pytest.mark.parametrize("native", [False, True])
async def test_a_stranger_in_place_of_the_master_is_left(tmp_path: Path, data: bytes, native: bool) -> None:
    connections: list[asyncio.StreamWriter] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        writer.write(data)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    async with server, running_store(tmp_path / "slave") as service:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with a_slave(service, Guide(address, native=native)) as slave:
            await until(lambda: len(connections) >= 2)
            assert slave.log.end in (0, 5)


async def test_an_idle_slave_reports_now_and_then(tmp_path: Path) -> None:
    async with running_store(tmp_path / "slave") as service:
        clock = FakeClock()
        link = MasterLink(FollowingLog(service.store), ReplicationSettings(), clock, lambda: None)
        written: list[bytes] = []

        class Transport(asyncio.Transport):
            def is_closing(self) -> bool:
                return False

            def write(self, data: bytes | bytearray | memoryview) -> None:
                written.append(bytes(data))

            def abort(self) -> None:
                link.connection_lost(None)

        link.connection_made(Transport())
        link.tick()
        assert written == [classic_report(0)]
        await clock.advance(5)
        link.tick()
        assert written == [classic_report(0)] * 2
        await clock.advance(16)
        link.tick()
        assert "nothing was received for 20 s" in await link.done
