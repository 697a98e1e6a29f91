"""The master's port: the stream that a classic slave gets, and peers that are no slaves."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ariane.replication.frames import (
    MAGIC,
    HelloDecoder,
    Report,
    classic_report,
    hello_bytes,
    native_report,
)
from ariane.replication.hello import Hello, Welcome, decoded, new_challenge
from ariane.replication.master import LOST_MAX
from ariane.replication.progress import Replicated
from ariane.replication.settings import ReplicationSettings
from ariane.store.following import FollowingLog
from ariane.store.service import StoreService
from tests.replication.golden_ha import FILE_BYTES, recording
from tests.replication.pairs import a_master, log_bytes, running_store
from tests.replication.peers import frames_until, introduce, is_closed, peer_of
from tests.store.stores import draft, put
from tests.transport.peers import until


@asynccontextmanager
async def recorded_store(root: Path) -> AsyncIterator[StoreService]:
    """A master's store with the log of the recordings, made by our slave."""
    async with running_store(root) as service:
        following = FollowingLog(service.store)
        for name in ("ha-fresh", "ha-resume"):
            for offset, body in recording(name).frames:
                if body:
                    following.append(offset, body)
        following.run_dry()
    async with running_store(root) as service:
        yield service


@pytest.mark.parametrize("cached", [True, False], ids=["from memory", "by a thread"])
async def test_a_slave_of_the_recording_gets_the_recorded_bytes(tmp_path: Path, cached: bool) -> None:
    fresh, resume = recording("ha-fresh"), recording("ha-resume")
    async with recorded_store(tmp_path / "master") as service, a_master(service) as master:
        log = service.store.components.commit_log
        log.assume_cached_from = 0 if cached else log.max_offset
        assert log_bytes(service.store) == fresh.log + resume.log
        async with peer_of(master) as (reader, writer):
            writer.write(classic_report(resume.facts["first_report"]))
            frames = await frames_until(reader, resume.facts["end_offset"])
            assert b"".join(body for _, _, body in frames) == resume.log
            for _, offset, body in frames:
                assert len(body) <= 32_768
                assert offset % FILE_BYTES + len(body) <= FILE_BYTES, "no frame crosses the end of a file"
            for end in resume.reports:
                writer.write(classic_report(end))
            await until(lambda: master.is_replicated(resume.facts["end_offset"]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(begin=st.integers(1, 310_361), batch=st.integers(1024, 70_000))
async def test_a_classic_slave_may_begin_anywhere_and_no_frame_crosses_a_file(
    tmp_path_factory: pytest.TempPathFactory, begin: int, batch: int
) -> None:
    async with (
        recorded_store(tmp_path_factory.mktemp("master")) as service,
        a_master(service, batch_bytes=batch) as master,
        peer_of(master) as (reader, writer),
    ):
        writer.write(classic_report(begin))
        frames = await frames_until(reader, 310_362)
        assert frames[0][1] == begin
        assert b"".join(body for _, _, body in frames) == log_bytes(service.store)[begin:]
        assert all(len(body) <= batch and offset % FILE_BYTES + len(body) <= FILE_BYTES for _, offset, body in frames)


async def test_an_idle_slave_gets_heartbeats_and_a_silent_one_is_closed(tmp_path: Path) -> None:
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service, heartbeat_interval_s=0.02, housekeeping_interval_s=0.3) as master,
        peer_of(master) as (reader, writer),
    ):
        end = put(service.store, draft(b"x"))[0].end
        writer.write(classic_report(end))
        assert await reader.readexactly(24) == struct.pack(">qiqi", end, 0, end, 0)
        assert await is_closed(reader)
        await until(lambda: not master.slaves())


# --- strangers --------------------------------------------------------------------------------------------------------

GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "negative": struct.pack(">q", -5),
    "ahead": classic_report(999_999),
    "random": bytes(range(200, 256)),
    "remoting frame": struct.pack(">iI", 100, 50) + b"{" * 96,
    "native garbage": MAGIC + struct.pack(">i", 10) + b"0123456789",
    "native giant": MAGIC + struct.pack(">i", 2**31 - 1),
    "native negative": MAGIC + struct.pack(">i", -1),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=list(GARBAGE))
async def test_a_strangers_bytes_are_never_an_acknowledgement(tmp_path: Path, data: bytes) -> None:
    async with running_store(tmp_path / "master") as service, a_master(service, slave_timeout_s=0.05) as master:
        put(service.store, draft(b"x" * 100))
        async with peer_of(master) as (reader, writer):
            writer.write(data)
            assert await is_closed(reader)
            end = put(service.store, draft(b"x"))[0].end
            assert not master.is_replicated(end)
            assert await master.replicated(end) is Replicated.NOT_AVAILABLE


async def test_a_report_beyond_what_was_sent_closes_the_connection(tmp_path: Path) -> None:
    async with running_store(tmp_path / "master") as service, a_master(service, slave_timeout_s=0.05) as master:
        end = put(service.store, draft(b"x" * 100))[0].end
        async with peer_of(master) as (reader, writer):
            writer.write(classic_report(end))
            await until(lambda: master.is_replicated(end))
            writer.write(classic_report(end + 1_000))
            assert await is_closed(reader)
            await until(lambda: not master.is_replicated(end))
            assert await master.replicated(end) is Replicated.NOT_AVAILABLE


async def test_a_silent_slave_acknowledges_nothing_after_it_was_ahead_once(tmp_path: Path) -> None:
    """In Apache, after one forged report every send was SEND_OK."""
    async with running_store(tmp_path / "master") as service, a_master(service, slave_timeout_s=0.05) as master:
        put(service.store, draft(b"x" * 100))
        async with peer_of(master) as (forger, forged), peer_of(master) as (_, writer):
            forged.write(classic_report(10**15))
            assert await is_closed(forger)
            writer.write(bytes(8))
            await until(lambda: len(master.slaves()) == 1)
            for _ in range(5):
                assert await master.replicated(put(service.store, draft(b"x"))[0].end) is Replicated.TIMEOUT


async def test_a_slow_reader_holds_little_and_others_go_on(tmp_path: Path) -> None:
    async with (
        running_store(tmp_path / "master", segment_bytes=4 * 1024 * 1024) as service,
        a_master(service) as master,
        peer_of(master) as (_, slow),
    ):
        slow.write(bytes(8))
        await until(lambda: len(master.slaves()) == 1)
        for _ in range(40):
            put(service.store, draft(bytes(1024 * 1024)))
            await asyncio.sleep(0)
        async with peer_of(master) as (reader, writer):
            end = service.store.components.commit_log.max_offset
            writer.write(classic_report(end - 100))
            await frames_until(reader, end)
            (status,) = [status for status in master.slaves() if status.acknowledged == 0]
            assert status.sent_to < end, "what the slow one does not read stays in the log"


@given(data=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
async def test_random_bytes_leave_the_master_alive(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    async with (
        running_store(tmp_path_factory.mktemp("master")) as service,
        a_master(service) as master,
        peer_of(master) as (reader, writer),
    ):
        put(service.store, draft(b"x"))
        writer.write(data)
        writer.write_eof()
        await is_closed(reader)
        await until(lambda: not master.slaves())
        assert await master.replicated(1) is Replicated.NOT_AVAILABLE


@pytest.mark.parametrize(
    ("allowed", "host", "is_trusted"),
    [
        ("", "127.0.0.1", True),
        ("", "::1", True),
        ("", "::ffff:127.0.0.1", True),
        ("", "10.0.0.7", False),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.8", False),
        ("10.0.0.0/24, fd00::/8", "10.0.0.200", True),
        ("10.0.0.0/24, fd00::/8", "fd00::1%eth0", True),
        ("10.0.0.0/24", "::ffff:10.0.0.9", True),
    ],
)
async def test_only_this_machine_and_allowed_peers_are_trusted(
    tmp_path: Path, allowed: str, host: str, is_trusted: bool
) -> None:
    async with running_store(tmp_path / "master") as service, a_master(service, allowed_peers=allowed) as master:
        assert master.is_trusted(host) is is_trusted


async def test_a_slave_that_reports_before_it_is_welcome_is_closed(tmp_path: Path) -> None:
    hello = Hello(
        cluster="DefaultCluster", group="broker-a", member=1, file_size=FILE_BYTES, min=0, end=0, tail=(0, 0),
        challenge=new_challenge(),
    )  # fmt: skip
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service) as master,
        peer_of(master) as (reader, writer),
    ):
        writer.write(MAGIC + hello_bytes(hello.to_bytes()) + hello_bytes(b"") + native_report(Report(0)))
        assert await is_closed(reader)
        assert not master.slaves()


async def test_what_comes_while_an_acknowledgement_is_on_its_way_is_one_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ariane.replication.master._GATHER_S", 3600.0)
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service) as master,
        peer_of(master) as (reader, writer),
    ):
        await introduce(reader, writer)
        first_end = put(service.store, draft(b"first"))[0].end
        (first,) = await frames_until(reader, first_end, native=True)
        assert first[1:] == (0, log_bytes(service.store))
        for number in range(5):
            end = put(service.store, draft(b"%d" % number))[0].end
            await asyncio.sleep(0)  # an iteration of the event loop each
        assert master.slaves()[0].sent_to == first_end
        writer.write(native_report(Report(first_end)))
        (second,) = await frames_until(reader, end, native=True)
        assert second[1:] == (first_end, log_bytes(service.store)[first_end:])


async def test_what_is_new_is_sent_in_a_moment_even_if_nothing_is_acknowledged(tmp_path: Path) -> None:
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service) as master,
        peer_of(master) as (reader, writer),
    ):
        await introduce(reader, writer)
        first_end = put(service.store, draft(b"first"))[0].end
        await frames_until(reader, first_end, native=True)
        end = put(service.store, draft(b"second"))[0].end
        (frame,) = await frames_until(reader, end, native=True)
        assert frame[1:] == (first_end, log_bytes(service.store)[first_end:])


async def test_slaves_at_one_place_all_get_the_log(tmp_path: Path) -> None:
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service) as master,
        peer_of(master) as first,
        peer_of(master) as second,
        peer_of(master) as (classic_reader, classic_writer),
    ):
        before = put(service.store, draft(b"before"))[0].end
        for member, pair in ((1, first), (2, second)):
            await introduce(*pair, member)
            await frames_until(pair[0], before, native=True)
            pair[1].write(native_report(Report(before)))
        classic_writer.write(classic_report(before))
        await until(lambda: len(master.slaves()) == 3)
        await until(lambda: all(slave.behind_bytes == 0 for slave in master.slaves()))
        end = put(service.store, draft(b"behind"))[0].end
        got = [await frames_until(reader, end, native=True) for reader, _ in (first, second)]
        got.append(await frames_until(classic_reader, end))
        assert [[frame[1:] for frame in frames] for frames in got] == [
            [(before, log_bytes(service.store)[before:])]
        ] * 3


async def test_a_native_slave_without_the_secret_learns_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of the cluster")
    hello = Hello(cluster="x", group="y", member=1, file_size=1, min=0, end=0, tail=(0, 0), challenge=new_challenge())
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service, secret_file=secret) as master,
        peer_of(master) as (reader, writer),
    ):
        writer.write(MAGIC + hello_bytes(hello.to_bytes()) + hello_bytes(b"wrong"))
        data, messages = await reader.read(), list[bytes]()
        while data:
            decoder = HelloDecoder()
            messages.append(decoder.feed(data) or b"")
            data = decoder.rest
        assert len(messages) == 3, "a challenge, a proof, and the refusal"
        assert "different secrets" in str(decoded(Welcome, messages[2]).refused)
        assert not master.slaves()


def test_settings_of_a_secret_and_of_peers_are_checked(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("x")
    for changes, reason in (
        ({"allowed_peers": "10.0.0.0/8, nonsense"}, "allowed_peers"),
        ({"master_address": "10.0.0.1"}, "haMasterAddress"),
        ({"access_key": "slave"}, "come together"),
    ):
        with pytest.raises(Exception, match=reason):
            ReplicationSettings(**changes)  # type: ignore[arg-type]
    for file in (short, tmp_path / "missing"):
        with pytest.raises(Exception, match="secret_file"):
            ReplicationSettings(secret_file=file).secret()


# --- for operators ----------------------------------------------------------------------------------------------------


async def test_a_slave_that_left_is_remembered_until_it_is_back(tmp_path: Path) -> None:
    async with recorded_store(tmp_path) as service, a_master(service) as master:
        async with peer_of(master) as (reader, writer):
            writer.write(classic_report(0))
            frames = await frames_until(reader, service.store.components.commit_log.max_offset)
            writer.write(classic_report(frames[-1][1] + len(frames[-1][2])))
            await until(lambda: [slave.behind_bytes for slave in master.slaves()] == [0])
            assert [slave.behind_s for slave in master.slaves()] == [0]
            sent = master.sent_bytes
            assert sent == sum(len(body) for _, _, body in frames)
            assert master.lost() == []
        await until(lambda: not master.slaves())
        (lost,) = master.lost()
        assert (lost.acknowledged, lost.member, lost.behind_s) == (master.source.end, None, 0)
        assert master.sent_bytes == sent, "of those that left, too"
        async with peer_of(master) as (_, writer):
            writer.write(classic_report(master.source.end))
            await until(master.slaves)
            await until(lambda: not master.lost() or master.slaves()[0].connected_ms < lost.lost_ms)


async def test_a_slave_whose_place_in_time_is_not_known_is_behind_by_unknown_seconds(tmp_path: Path) -> None:
    """The master was started when the log was already longer than the slave's."""
    async with recorded_store(tmp_path) as service, a_master(service) as master, peer_of(master) as (_, writer):
        writer.write(classic_report(0))
        await until(master.slaves)
        (slave,) = master.slaves()
        assert slave.behind_bytes == master.source.end
        assert slave.behind_s is None


async def test_only_so_many_refused_peers_are_remembered(tmp_path: Path) -> None:
    async with recorded_store(tmp_path) as service, a_master(service) as master:
        for number in range(LOST_MAX + 5):
            master._remember_lost(f"10.0.0.{number}", f"10.0.0.{number}:1", None, "a stranger", None)
        assert [lost.address for lost in master.lost()] == [f"10.0.0.{number}:1" for number in range(5, LOST_MAX + 5)]
