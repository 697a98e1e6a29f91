"""The broker for tests without pytest: a context manager."""

import socket
import threading
from pathlib import Path

import pytest

from ariane.errors import ListenFailed, SettingsError
from ariane.testing import FakeClock, running_broker


def test_no_files_are_left_at_the_end() -> None:
    with running_broker() as broker:
        broker.send("orders", b"one")
        host, _, port = broker.address.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    assert "ariane-broker" not in {thread.name for thread in threading.enumerate()}


def test_a_directory_that_is_given_is_kept(tmp_path: Path) -> None:
    with running_broker(tmp_path / "store") as broker:
        broker.send("orders", b"one", keys=["k"])
    with running_broker(tmp_path / "store") as broker:
        assert [message.body for message in broker.messages("orders")] == [b"one"]


def test_messages_of_all_queues_are_ordered_by_time() -> None:
    with running_broker() as broker:
        broker.create_topic("orders", queues=3)
        bodies = [b"%d" % number for number in range(100)]
        for body in bodies:
            broker.send("orders", body)
        assert [message.body for message in broker.wait_for_messages("orders", 100)] == bodies


def test_a_misspelt_setting_is_an_error() -> None:
    with pytest.raises(SettingsError, match="no setting auto_create_topic;"), running_broker(auto_create_topic=True):
        pass


def test_a_failed_start_raises_its_cause() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenFailed, match=str(port)), running_broker(port=port):
            pass


HOUR_S = 3600
TIMER_SLOT_S = 0.1


def test_a_delayed_message_is_due_when_the_time_of_the_broker_has_passed() -> None:
    with running_broker(clock=FakeClock()) as broker:
        broker.send("orders", b"in two hours", delay_level=18)
        broker.advance(2 * HOUR_S - 1)
        broker.send("orders", b"now")
        assert [message.body for message in broker.messages("orders")] == [b"now"]
        broker.advance(1)
        assert [message.body for message in broker.wait_for_messages("orders", 2)] == [b"now", b"in two hours"]


def test_a_message_with_a_delivery_time_is_due_when_the_broker_has_that_time() -> None:
    clock = FakeClock()
    with running_broker(clock=clock) as broker:
        broker.send("orders", b"tomorrow", deliver_at=clock.now_ms() + 24 * HOUR_S * 1000)
        assert broker.messages("orders") == []
        broker.advance(24 * HOUR_S + TIMER_SLOT_S)
        (message,) = broker.wait_for_messages("orders", 1)
        assert message.body == b"tomorrow"


async def test_an_async_test_moves_the_time_of_the_broker_too() -> None:
    with running_broker(clock=FakeClock()) as broker:
        await broker.aio.send("orders", b"in two hours", delay_level=18)
        await broker.aio.advance(2 * HOUR_S)
        assert len(await broker.aio.wait_for_messages("orders", 1)) == 1


def test_the_system_clock_cannot_be_moved() -> None:
    with running_broker() as broker, pytest.raises(RuntimeError, match=r"pass clock=FakeClock\(\)"):
        broker.advance(1)
