"""Peers at a master's replication port that forge, flood, dribble, replay or do not read: nothing is acknowledged."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ariane.replication.frames import MAGIC, Report, classic_report, hello_bytes, native_report
from ariane.replication.hello import Hello, Welcome, decoded, new_challenge, slave_proof
from ariane.replication.master import LINKS_MAX, Master
from ariane.replication.progress import Replicated
from ariane.transport.settings import TlsMode
from tests.replication.golden_ha import FILE_BYTES
from tests.replication.pairs import Guide, a_master, a_slave, running_store
from tests.replication.peers import frames_until, introduce, introduction, is_closed, peer_of
from tests.store.stores import draft, put
from tests.transport.peers import until
from tests.transport.test_tls import Certificates, tls

MiB = 1024 * 1024


def a_hello(end: int = 0, tail: tuple[int, int] = (0, 0)) -> bytes:
    """By default of an empty slave."""
    return Hello(
        cluster="DefaultCluster", group="broker-a", member=1, file_size=FILE_BYTES, min=0, end=end, tail=tail,
        challenge=new_challenge(),
    ).to_bytes()  # fmt: skip


def reasons_of(master: Master) -> list[str | None]:
    return [lost.reason for lost in master.lost()]


def has_reason(master: Master, text: str) -> Callable[[], bool]:
    return lambda: any(text in str(reason) for reason in reasons_of(master))


# --- reports ----------------------------------------------------------------------------------------------------------


async def test_a_forged_report_takes_nothing_from_another_slave_and_adds_nothing(tmp_path: Path) -> None:
    async with running_store(tmp_path / "master") as service, a_master(service, slave_timeout_s=0.05) as master:
        end = put(service.store, draft(b"x" * 100))[0].end
        async with peer_of(master) as (_, honest), peer_of(master) as (reader, forger):
            honest.write(classic_report(end))
            await until(lambda: master.is_replicated(end))
            forger.write(classic_report(1))
            await until(lambda: len(master.slaves()) == 2)
            later = put(service.store, draft(b"y"))[0].end
            forger.write(classic_report(later + 1))
            await is_closed(reader)
            await until(lambda: len(master.slaves()) == 1)
            assert master.is_replicated(end)
            assert not master.is_replicated(later)
            assert await master.replicated(later) is Replicated.TIMEOUT
            honest.write(classic_report(later))
            await until(lambda: master.is_replicated(later))


async def test_a_report_of_what_only_another_connection_was_sent_is_forged(tmp_path: Path) -> None:
    """It is below the end of the log, and yet this peer cannot have it."""
    async with (
        running_store(tmp_path / "master", segment_bytes=4 * MiB) as service,
        a_master(service) as master,
        peer_of(master) as (_, slow),
        peer_of(master) as (reader, writer),
    ):
        slow.write(bytes(8))
        await until(master.slaves)
        for _ in range(40):
            put(service.store, draft(bytes(MiB)))
            await asyncio.sleep(0)
        end = master.source.end
        writer.write(classic_report(end - 100))
        await frames_until(reader, end)
        slow.write(classic_report(end))
        await until(has_reason(master, "was sent: it is not a slave"))
        assert not master.is_replicated(end)
        writer.write(classic_report(end))
        await until(lambda: master.is_replicated(end))


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (native_report(Report(0, epoch=7)), "epoch 7"),
        (native_report(Report(0, dispatched=5)), "5 of 0 as dispatched"),
        (native_report(Report(0, dispatched=-5)), "-5 of 0 as dispatched"),
        (native_report(Report(10**15)), "it is not a slave"),
        (b"\0\0\0\1" + bytes(20), "kind 1"),
        (classic_report(5) * 3, "epoch 5"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "kind"),
    ],
    ids=["epoch", "dispatched beyond its log", "negative", "ahead", "kind", "classic", "http"],
)
async def test_other_bytes_behind_the_welcome_are_no_report(tmp_path: Path, report: bytes, reason: str) -> None:
    async with running_store(tmp_path / "master") as service, a_master(service) as master:
        async with peer_of(master) as (reader, writer):
            await introduce(reader, writer)
            writer.write(report)
            await is_closed(reader)
        await until(has_reason(master, reason))
        assert not master.is_replicated(put(service.store, draft(b"x"))[0].end)


# --- introductions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_reports_of_4_x_behind_a_hello_are_no_proof(tmp_path: Path, count: int) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of the cluster")
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service, secret_file=secret, slave_timeout_s=0.05) as master,
        peer_of(master) as (reader, writer),
    ):
        writer.write(MAGIC + hello_bytes(a_hello()) + classic_report(0) * count)
        await is_closed(reader)
        assert not master.slaves()
        assert await master.replicated(put(service.store, draft(b"x"))[0].end) is Replicated.NOT_AVAILABLE


async def test_a_replayed_introduction_is_refused(tmp_path: Path) -> None:
    """Every byte that a slave with the secret has sent, to the same master again."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of the cluster")
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service, secret_file=secret) as master,
    ):
        hello = a_hello()
        async with peer_of(master) as (reader, writer):
            writer.write(MAGIC + hello_bytes(hello))
            challenge, _ = [await introduction(reader), await introduction(reader)]
            proof = slave_proof(b"a secret of the cluster", hello, challenge)
            writer.write(hello_bytes(proof))
            assert decoded(Welcome, await introduction(reader)).refused is None
            await until(lambda: [slave.member for slave in master.slaves()] == [1])
            async with peer_of(master) as (second, replayed):
                replayed.write(MAGIC + hello_bytes(hello) + hello_bytes(proof))
                again, _ = [await introduction(second), await introduction(second)]
                assert again != challenge
                assert "different secrets" in str(decoded(Welcome, await introduction(second)).refused)
                await is_closed(second)
            assert [slave.member for slave in master.slaves()] == [1], "the true one is not disturbed"


@pytest.mark.parametrize(
    ("end", "size"),
    [(FILE_BYTES + 10, 11), (FILE_BYTES + 10, 0), (FILE_BYTES + 10, -1), (FILE_BYTES, 4097), (1, 2)],
    ids=["of two files", "none", "negative", "too many", "before the log"],
)
async def test_a_slave_must_let_its_last_bytes_be_compared(tmp_path: Path, end: int, size: int) -> None:
    """Else the log of another history could be joined to the master's."""
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service) as master,
        peer_of(master) as (reader, writer),
    ):
        put(service.store, *[draft(bytes(20_000)) for _ in range(5)])
        hello = a_hello(end, (size, 12345))
        writer.write(MAGIC + hello_bytes(hello))
        challenge, _ = [await introduction(reader), await introduction(reader)]
        writer.write(hello_bytes(slave_proof(None, hello, challenge)))
        assert f"the last {size} bytes" in str(decoded(Welcome, await introduction(reader)).refused)
        assert not master.slaves()


@pytest.mark.parametrize(
    "begin", [b"", b"\0\0\0", MAGIC, MAGIC + b"\0\0\1\0"], ids=["4.x", "one byte left", "magic", "half a hello"]
)
async def test_a_peer_that_never_ends_its_introduction_is_closed(tmp_path: Path, begin: bytes) -> None:
    """It sends a byte now and then, so it is never silent."""
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service, housekeeping_interval_s=0.5) as master,
        peer_of(master) as (reader, writer),
    ):
        writer.write(begin)
        closing = asyncio.ensure_future(is_closed(reader))
        left = 7 - len(begin) if not begin.startswith(MAGIC) else 200
        while not closing.done():
            if left > 0 and not writer.is_closing():
                writer.write(b"\0")
                left -= 1
            await asyncio.wait([closing], timeout=0.1)
        await until(lambda: bool(reasons_of(master)))
        assert not master.slaves()


async def test_a_dribbling_peer_is_closed_for_its_introduction_and_not_for_silence(tmp_path: Path) -> None:
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service, housekeeping_interval_s=1.0) as master,
        peer_of(master) as (_, writer),
    ):
        writer.write(MAGIC + b"\0\0\xff\0")
        while not reasons_of(master):
            writer.write(b"{")
            await asyncio.sleep(0.02)
        assert reasons_of(master) == ["it has not introduced itself within 1 s"]


async def test_two_slaves_with_one_id_are_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service) as master,
        peer_of(master) as (first, writer),
        peer_of(master) as other,
    ):
        await introduce(first, writer)
        await introduce(*other)
        await is_closed(first)
        await until(lambda: any("give one another brokerId" in str(getattr(r, "reason", "")) for r in caplog.records))


# --- floods, and peers that do not read -------------------------------------------------------------------------------


async def test_what_a_slow_reader_holds_at_the_master_is_bounded(tmp_path: Path) -> None:
    async with (
        running_store(tmp_path / "master", segment_bytes=16 * MiB) as service,
        a_master(service, batch_bytes=4 * MiB - 12) as master,
        peer_of(master) as (_, classic),
        peer_of(master) as native,
    ):
        classic.write(bytes(8))
        await introduce(*native)
        await until(lambda: len(master.slaves()) == 2)
        for _ in range(64):
            put(service.store, draft(bytes(MiB)))
            await asyncio.sleep(0)
        held = [link._transport.get_write_buffer_size() for link in master._links if link._transport is not None]
        assert len(held) == 2
        assert max(held) < 16 * MiB < master.source.end


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_a_flood_leaves_no_more_sockets_open_than_slaves_may_connect(
    tmp_path: Path, with_tls: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With TLS a connection is silent before it is known what it speaks."""
    certificates = Certificates(tmp_path_factory.mktemp("certificates")) if with_tls else None
    settings = tls(certificates, TlsMode.PERMISSIVE) if certificates is not None else None
    async with running_store(tmp_path / "master") as service, a_master(service, tls=settings) as master:
        put(service.store, draft(b"x"))
        flood = [await asyncio.open_connection(master.address.host, master.address.port) for _ in range(3 * LINKS_MAX)]
        for reader, _ in flood[: 2 * LINKS_MAX]:
            await is_closed(reader)
        await until(lambda: len(master._tasks) <= LINKS_MAX)
        async with peer_of(master) as (_, writer):
            writer.write(classic_report(1))
            await until(lambda: len(master.slaves()) == 1)
        assert len(master._links) <= LINKS_MAX
        for _, writer in flood:
            writer.close()


async def test_a_slave_connects_in_the_midst_of_a_flood(tmp_path: Path) -> None:
    async with (
        running_store(tmp_path / "master") as service,
        running_store(tmp_path / "slave") as copy,
        a_master(service) as master,
    ):
        end = put(service.store, draft(b"x" * 1000))[0].end
        stop = asyncio.Event()

        async def flood() -> None:
            while not stop.is_set():
                some = [await asyncio.open_connection(master.address.host, master.address.port) for _ in range(40)]
                some[0][1].write(MAGIC + b"\x7f\xff\xff\xff")
                some[1][1].write(classic_report(10**15))
                await asyncio.sleep(0)
                for _, writer in some:
                    writer.close()

        attack = asyncio.ensure_future(flood())
        async with a_slave(copy, Guide(str(master.address), native=True)) as slave:
            await until(lambda: slave.log.dispatched_to == end)
            await until(lambda: master.is_replicated(end))
        stop.set()
        await attack


# --- TLS and plain text -----------------------------------------------------------------------------------------------


def has_logged(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    return lambda: any(text in str(getattr(record, "reason", "")) for record in caplog.records)


async def test_plain_text_at_a_port_that_enforces_tls_is_logged_at_both_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    async with (
        running_store(tmp_path / "master") as service,
        running_store(tmp_path / "slave") as copy,
        a_master(service, tls=tls(certificates, TlsMode.ENFORCING)) as master,
        a_slave(copy, Guide(str(master.address), native=True)),
    ):
        await until(has_logged(caplog, "plain text at a server that enforces TLS"))
        await until(has_logged(caplog, "the master's log says why"))
        assert not master.slaves()


@pytest.mark.parametrize("native", [False, True], ids=["classic", "native"])
async def test_tls_at_a_plain_port_is_logged_at_both_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, native: bool
) -> None:
    async with (
        running_store(tmp_path / "master") as service,
        running_store(tmp_path / "slave") as copy,
        a_master(service) as master,
        a_slave(copy, Guide(str(master.address), native=native), tls=True) as slave,
    ):
        put(service.store, draft(b"x"))
        await until(has_logged(caplog, "TLS at a port without it"))
        await until(lambda: "TLS" in str(slave.status.reason))
        assert not master.slaves()
