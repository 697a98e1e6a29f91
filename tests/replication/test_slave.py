"""A master and slaves over real sockets: what a slave gets, what it acknowledges, and how it goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ariane.clock import Clock
from ariane.replication.hello import Identity
from ariane.replication.master import Master
from ariane.replication.progress import Replicated
from ariane.replication.slave import Slave
from ariane.store.service import StoreService
from tests.replication.pairs import FILE_BYTES, IDENTITY, Guide, a_master, a_slave, log_bytes, running_store
from tests.store.stores import bodies, draft, entries, put
from tests.transport.peers import until

BOTH = pytest.mark.parametrize("native", [False, True], ids=["classic", "native"])


def send(service: StoreService, count: int, size: int = 500, first: int = 0) -> int:
    """The end of the last record."""
    drafts = [draft(b"%d" % (first + n) + bytes(size), queue_id=n % 3, key=f"k{n}", tag="T") for n in range(count)]
    return put(service.store, *drafts)[-1].end


def is_level(service: StoreService, slave: Slave) -> bool:
    """Whether the slave has, and has dispatched, all of the master's log."""
    return service.store.components.commit_log.max_offset == slave.log.dispatched_to


def assert_equal(master: StoreService, slave: StoreService) -> None:
    assert log_bytes(master.store) == log_bytes(slave.store)
    queues = {(queue.topic, queue.queue_id): entries(queue) for queue in master.store.components.queues}
    assert {(queue.topic, queue.queue_id): entries(queue) for queue in slave.store.components.queues} == queues


@pytest.fixture
async def master_store(tmp_path: Path) -> AsyncIterator[StoreService]:
    async with running_store(tmp_path / "master") as service:
        yield service


@pytest.fixture
async def slave_store(tmp_path: Path) -> AsyncIterator[StoreService]:
    async with running_store(tmp_path / "slave") as service:
        yield service


class RecordingClock(Clock):
    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(seconds)


@BOTH
async def test_a_slave_gets_what_was_there_and_what_comes(
    master_store: StoreService, slave_store: StoreService, native: bool
) -> None:
    send(master_store, 50)
    async with (
        a_master(master_store) as master,
        a_slave(slave_store, Guide(str(master.address), native=native)) as slave,
    ):
        await until(lambda: is_level(master_store, slave))
        for round_ in range(10):
            send(master_store, 100, first=round_ * 100)
            await asyncio.sleep(0)
        await until(lambda: is_level(master_store, slave))
        assert master_store.store.components.commit_log.max_offset > 8 * FILE_BYTES
        assert_equal(master_store, slave_store)
        await until(lambda: [status.behind_bytes for status in master.slaves()] == [0])
        assert [status.member for status in master.slaves()] == [1 if native else None]
        assert slave.status.master == str(master.address)


async def test_a_classic_slave_without_a_log_begins_with_the_last_file_and_a_native_one_with_the_first(
    master_store: StoreService, tmp_path: Path
) -> None:
    send(master_store, 300)
    end = master_store.store.components.commit_log.max_offset
    for native, begin in ((False, end - end % FILE_BYTES), (True, 0)):
        async with (
            a_master(master_store) as master,
            running_store(tmp_path / f"slave-{native}") as service,
            a_slave(service, Guide(str(master.address), native=native)) as slave,
        ):
            await until(lambda: is_level(master_store, slave))
            assert slave.log.begin == begin
            assert log_bytes(service.store) == log_bytes(master_store.store)[begin:]


@BOTH
async def test_a_message_is_replicated_when_the_slave_has_reported_it(
    master_store: StoreService, slave_store: StoreService, native: bool
) -> None:
    async with a_master(master_store) as master:
        assert await master.replicated(send(master_store, 1)) is Replicated.NOT_AVAILABLE
        async with a_slave(slave_store, Guide(str(master.address), native=native)) as slave:
            await until(lambda: bool(master.slaves()))
            end = send(master_store, 1)
            assert not master.is_replicated(end)
            assert await master.replicated(end) is Replicated.YES
            assert master.is_replicated(end)
            assert slave.log.end >= end
        await until(lambda: not master.slaves())
        assert not master.is_replicated(end), "an acknowledgement goes with its connection"
        assert await master.replicated(send(master_store, 1)) is Replicated.NOT_AVAILABLE


async def test_who_waits_for_a_silent_slave_gives_up(master_store: StoreService) -> None:
    async with a_master(master_store, slave_timeout_s=0.05) as master:
        reader, writer = await asyncio.open_connection(master.address.host, master.address.port)
        writer.write(bytes(8))
        await until(lambda: bool(master.slaves()))
        ends = [send(master_store, 1) for _ in range(3)]
        assert await asyncio.gather(*map(master.replicated, ends)) == [Replicated.TIMEOUT] * 3
        writer.close()
        assert await reader.read()


async def test_a_slave_that_is_too_far_behind_is_not_waited_for(master_store: StoreService) -> None:
    async with a_master(master_store, fall_behind_bytes_max=1000) as master:
        _, writer = await asyncio.open_connection(master.address.host, master.address.port)
        writer.write(bytes(8))
        await until(lambda: bool(master.slaves()))
        assert await master.replicated(send(master_store, 3)) is Replicated.NOT_AVAILABLE
        writer.close()


@BOTH
async def test_after_any_interruption_the_slave_goes_on(tmp_path: Path, native: bool) -> None:
    find = Guide(None, native=native)
    async with running_store(tmp_path / "master") as master_service:
        for round_ in range(6):
            async with AsyncExitStack() as stack:
                service = await stack.enter_async_context(running_store(tmp_path / "slave"))
                slave = await stack.enter_async_context(a_slave(service, find))
                for _ in range(3):
                    async with a_master(master_service) as master:
                        find.address = str(master.address)
                        send(master_service, 40, first=round_)
                        await until(lambda: slave.log.end > 0)  # noqa: B023 - called in this iteration
                        send(master_service, 40, size=3000)
                if round_ % 2:
                    async with a_master(master_service) as master:
                        find.address = str(master.address)
                        await until(lambda: is_level(master_service, slave))  # noqa: B023
        async with (
            running_store(tmp_path / "slave") as service,
            a_master(master_service) as master,
            a_slave(service, find) as slave,
        ):
            find.address = str(master.address)
            await until(lambda: is_level(master_service, slave))
            assert_equal(master_service, service)


async def test_several_slaves_follow_one_master_and_one_is_enough(master_store: StoreService, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(a_master(master_store))
        services, slaves = [], []
        for member in (1, 2, 3):
            services.append(await stack.enter_async_context(running_store(tmp_path / f"slave-{member}")))
            find = Guide(str(master.address), native=member != 2)
            slaves.append(await stack.enter_async_context(a_slave(services[-1], find, member=member)))
        await until(lambda: len(master.slaves()) == 3)
        for _ in range(20):
            assert await master.replicated(send(master_store, 10)) is Replicated.YES
        await until(lambda: all(is_level(master_store, slave) for slave in slaves))
        for service in services:
            assert_equal(master_store, service)


async def test_old_bytes_are_read_by_a_thread_and_slowly(master_store: StoreService, slave_store: StoreService) -> None:
    send(master_store, 500)
    log = master_store.store.components.commit_log
    log.assume_cached_from = log.max_offset  # as after a checkpoint
    clock = RecordingClock()
    async with (
        a_master(master_store, clock=clock, catch_up_mib_s=1) as master,
        a_slave(slave_store, Guide(str(master.address), native=True)) as slave,
    ):
        await until(lambda: is_level(master_store, slave))
        paused_s = sum(s for s in clock.slept if s < 0.07)
        assert paused_s > 0.15, "0.3 MiB at 1 MiB/s, file by file"
        assert_equal(master_store, slave_store)
        send(master_store, 5)
        await until(lambda: is_level(master_store, slave))
        assert_equal(master_store, slave_store)


async def test_a_pull_of_the_slave_sees_messages_when_they_are_dispatched(
    master_store: StoreService, slave_store: StoreService
) -> None:
    arrived: list[tuple[str, int, int]] = []
    slave_store.store.components.dispatcher.on_arrival(lambda *facts: arrived.append(facts[:3]))
    async with (
        a_master(master_store) as master,
        a_slave(slave_store, Guide(str(master.address), native=True)) as slave,
    ):
        send(master_store, 300)
        await until(lambda: is_level(master_store, slave))
        assert {facts[:2] for facts in arrived} == {("orders", 0), ("orders", 1), ("orders", 2)}
        assert max(facts[2] for facts in arrived) == 100
        assert bodies(slave_store.store, "orders", 1) == bodies(master_store.store, "orders", 1)


@BOTH
async def test_a_master_that_stops_first_gives_its_slaves_what_it_has(
    master_store: StoreService, slave_store: StoreService, native: bool
) -> None:
    async with AsyncExitStack() as master_runs:
        master = await master_runs.enter_async_context(a_master(master_store))
        async with a_slave(slave_store, Guide(str(master.address), native=native)) as slave:
            await until(lambda: bool(master.slaves()))
            end = send(master_store, 500)
            await master_runs.aclose()  # before the next event-loop iteration, in which it would have sent them
            assert slave.log.end == end


async def test_a_master_does_not_wait_for_ever_for_a_slave_when_it_stops(master_store: StoreService) -> None:
    async with a_master(master_store, slave_timeout_s=0.05) as master:
        _, writer = await asyncio.open_connection(master.address.host, master.address.port)
        writer.write(bytes(8))
        await until(lambda: bool(master.slaves()))
        send(master_store, 3)
    writer.close()


async def test_a_slave_of_an_empty_master_follows_as_soon_as_it_is_welcome(
    master_store: StoreService, slave_store: StoreService
) -> None:
    """Heartbeats come an hour later here."""
    async with (
        a_master(master_store, heartbeat_interval_s=600, housekeeping_interval_s=3600) as master,
        a_slave(slave_store, Guide(str(master.address), native=True)) as slave,
    ):
        await until(lambda: slave.status.master == str(master.address))


async def test_what_arrived_is_dispatched_before_a_stop(master_store: StoreService, slave_store: StoreService) -> None:
    async with a_master(master_store) as master:
        async with a_slave(slave_store, Guide(str(master.address), native=True)) as slave:
            end = send(master_store, 200)
            await until(lambda: slave.log.end == end)
        assert slave.log.dispatched_to == end


@pytest.mark.parametrize(
    ("identity", "member", "reason"),
    [
        (Identity("OtherCluster", "broker-a", FILE_BYTES), 1, "cluster OtherCluster"),
        (Identity("DefaultCluster", "broker-b", FILE_BYTES), 1, "brokerName broker-b"),
        (Identity("DefaultCluster", "broker-a", 2 * FILE_BYTES), 1, "mappedFileSizeCommitLog"),
        (IDENTITY, 0, "brokerId 0"),
    ],
)
async def test_a_slave_of_another_broker_is_refused_with_the_reason(
    master_store: StoreService,
    slave_store: StoreService,
    caplog: pytest.LogCaptureFixture,
    identity: Identity,
    member: int,
    reason: str,
) -> None:
    async with (
        a_master(master_store) as master,
        a_slave(slave_store, Guide(str(master.address), native=True), identity, member),
    ):
        await until(lambda: any(reason in str(getattr(r, "reason", "")) for r in caplog.records))
        assert not master.slaves()


async def test_a_slave_with_another_history_is_refused(
    master_store: StoreService, slave_store: StoreService, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the master lost its last messages in a power cut, and got others."""
    put(slave_store.store, *[draft(b"other" * 100) for _ in range(10)])
    send(master_store, 50)
    async with (
        a_master(master_store) as master,
        a_slave(slave_store, Guide(str(master.address), native=True)) as slave,
    ):
        await until(lambda: any("differ before" in str(getattr(r, "reason", "")) for r in caplog.records))
        assert not master.slaves()
        assert slave.status.master is None


async def test_a_slave_that_is_ahead_of_its_master_is_refused(
    master_store: StoreService, slave_store: StoreService, caplog: pytest.LogCaptureFixture
) -> None:
    send(slave_store, 50)
    send(master_store, 5)
    for native in (True, False):
        caplog.clear()
        async with a_master(master_store) as master:
            find = Guide(str(master.address), native=native)
            async with a_slave(slave_store, find):
                await until(lambda: any("beyond the master's" in str(getattr(r, "reason", "")) for r in caplog.records))
                assert not master.slaves()


async def test_a_secret_is_needed_at_both_ends(
    master_store: StoreService, slave_store: StoreService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text("a secret of the cluster\n")
    theirs.write_text("another secret of a cluster\n")
    send(master_store, 5)
    for at_master, at_slave, is_good in (
        (ours, ours, True),
        (ours, theirs, False),
        (None, ours, False),
        (ours, None, False),
    ):
        caplog.clear()
        async with a_master(master_store, secret_file=at_master) as master:
            find = Guide(str(master.address), native=True)
            async with a_slave(slave_store, find, secret_file=at_slave) as slave:
                if is_good:
                    await until(lambda: is_level(master_store, slave))
                else:
                    await until(lambda: any("secret" in str(getattr(r, "reason", "")) for r in caplog.records))
                    assert not master.slaves()


async def test_the_master_keeps_the_log_for_connected_slaves(
    master_store: StoreService, slave_store: StoreService
) -> None:
    send(master_store, 400)
    await master_store._make_durable()
    async with a_master(master_store) as master:
        assert master.needed_from() is None
        reader, writer = await asyncio.open_connection(master.address.host, master.address.port)
        writer.write((1).to_bytes(8, "big"))
        await until(lambda: master.needed_from() == 1)
        assert (await master_store.clean(manual=True)).files == 0
        writer.close()
        await until(lambda: master.needed_from() is None)
        del reader


async def test_a_full_disk_wins_over_a_slave_that_is_behind_and_both_ends_say_so(
    tmp_path: Path, slave_store: StoreService, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_store(tmp_path / "master") as service:
        send(service, 600)
        await service._make_durable()
    full = {"disk_max_used_ratio": 0.0001, "force_clean_ratio": 0.0001, "refuse_writes_ratio": 0.0001}
    async with running_store(tmp_path / "master", **full) as service:
        log = service.store.components.commit_log
        log.assume_cached_from = log.max_offset
        async with (
            a_master(service, catch_up_mib_s=0.1) as master,
            a_slave(slave_store, Guide(str(master.address), native=True)) as slave,
        ):
            await until(lambda: slave.log.end >= FILE_BYTES)
            assert (await service.clean()).files
            assert log.min_offset > slave.log.end
            await until(lambda: any("no bytes at" in str(getattr(r, "reason", "")) for r in caplog.records))
            await until(
                lambda: any("what is between is deleted" in str(getattr(r, "reason", "")) for r in caplog.records)
            )
            assert "although a slave has not got it" in caplog.text
            assert not master.slaves()


async def test_a_restarted_slave_replaces_its_old_connection(master_store: StoreService, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        master: Master = await stack.enter_async_context(a_master(master_store))
        find = Guide(str(master.address), native=True)
        for number in range(2):
            service = await stack.enter_async_context(running_store(tmp_path / f"slave-{number}"))
            await stack.enter_async_context(a_slave(service, find, member=1))
            await until(lambda: bool(master.slaves()))
        await until(lambda: len(master.slaves()) == 1)


@pytest.mark.parametrize("native", [False, True], ids=["classic", "native"])
def test_master_and_slave_run_on_uvloop_as_servers_do(tmp_path: Path, native: bool) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def run() -> None:
        async with (
            running_store(tmp_path / "master") as master_service,
            running_store(tmp_path / "slave") as slave_service,
        ):
            for _ in range(3):
                async with a_master(master_service) as master:
                    find = Guide(str(master.address), native=native)
                    async with a_slave(slave_service, find) as slave:
                        await until(master.slaves)
                        for _ in range(20):
                            assert await master.replicated(send(master_service, 20)) is Replicated.YES
                        await until(lambda: is_level(master_service, slave))
            assert_equal(master_service, slave_service)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


# --- for operators ----------------------------------------------------------------------------------------------------


async def test_a_slave_knows_how_far_it_is_behind_and_why_it_does_not_follow(
    master_store: StoreService, slave_store: StoreService
) -> None:
    send(master_store, 20)
    guide = Guide(None, native=True)
    async with a_slave(slave_store, guide) as slave:
        await until(lambda: slave.status.reason == "no master at present")
        assert (slave.status.behind_bytes, slave.status.behind_s) == (None, None), "never connected: not known"
        async with a_master(master_store) as master:
            guide.address = str(master.address)
            await until(lambda: slave.status.behind_bytes == 0)
            status = slave.status
            assert (status.behind_s, status.reason, status.master) == (0, None, str(master.address))
            assert status.received_ms is not None
            assert status.reported_ms is not None
        await until(lambda: slave.status.master is None)
        assert slave.status.reason
        assert slave.status.behind_bytes is None
        assert slave.status.behind_s is not None, "it had everything when the master went"


async def test_of_a_silent_master_of_apache_nothing_is_known(slave_store: StoreService) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with a_slave(slave_store, Guide(f"{host}:{port}", native=False)) as slave:
            await until(lambda: slave.status.reason == f"{host}:{port} has not sent anything yet")
            assert (slave.status.master, slave.status.behind_bytes, slave.status.behind_s) == (None, None, None)
