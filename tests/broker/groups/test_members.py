"""The registry of clients, with controlled time and real connections."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ariane.broker.groups.configs import Disagreement
from ariane.broker.groups.members import Clients, ConsumerGroup
from ariane.testing import FakeClock
from ariane.transport.connection import Connection
from ariane.wire.codes import Language
from ariane.wire.requests.clients import ConsumerData
from tests.broker.consumer_group_fixtures import consumer, heartbeat, subscription
from tests.transport.peers import connected, echo, request_frame, serving

ORDERS = subscription("orders")


@asynccontextmanager
async def connections(count: int) -> AsyncIterator[list[Connection]]:
    """The broker's ends of `count` connections."""
    found: list[Connection] = []

    def receive(connection: Connection, command):  # type: ignore[no-untyped-def]
        found.append(connection)
        return echo(connection, command)

    async with serving(receive) as server:
        clients = [connected(server) for _ in range(count)]
        for client in clients:
            raw = await client.__aenter__()
            await raw.send(request_frame())
            await raw.read()
        yield found
        for client in clients:
            await client.__aexit__(None, None, None)


def beat(
    clients: Clients, connection: Connection, name: str, *data: ConsumerData, now: float = 0, producers: str = ""
) -> None:
    body = heartbeat(name, *data, producers=tuple(producers.split())).body
    assert body is not None
    clients.heartbeat(connection, body, Language.JAVA, 409, now)


async def test_a_client_without_heartbeat_for_two_minutes_is_removed_and_the_others_are_notified() -> None:
    changes: list[list[str]] = []
    clients = Clients(lambda group: changes.append(group.client_ids()))
    async with connections(2) as (silent, lively):
        beat(clients, silent, "silent", consumer("g", ORDERS), producers="p")
        beat(clients, lively, "lively", consumer("g", ORDERS))
        beat(clients, lively, "lively", consumer("g", ORDERS), now=100)
        changes.clear()
        clients.expire(120)
        assert changes == []
        clients.expire(120.1)
        assert changes == [["lively"]]
        assert clients.producers("p") == []
        assert not silent.is_open
        assert lively.is_open


async def test_a_group_without_heartbeats_expires_while_its_client_stays() -> None:
    clients = Clients()
    async with connections(1) as (connection,):
        beat(clients, connection, "c", consumer("old", ORDERS), consumer("new", ORDERS), producers="gone stays")
        beat(clients, connection, "c", consumer("new", ORDERS), now=100, producers="stays")
        clients.expire(130)
        assert list(clients.groups()) == ["new"]
        assert clients.producer_groups() == ["stays"]
        assert connection.is_open


async def test_the_scan_runs_every_ten_seconds() -> None:
    clients, clock = Clients(), FakeClock()
    async with connections(1) as (connection,), clients.expiry_scan(clock):
        beat(clients, connection, "c", producers="p", now=clock.monotonic())
        await clock.advance(120)
        assert clients.producers("p")
        await clock.advance(10)
        assert not clients.producers("p")


async def test_the_heartbeat_of_a_closed_connection_leaves_nothing() -> None:
    clients = Clients()
    async with connections(1) as (connection,):
        connection.close()
        beat(clients, connection, "c", consumer("g", ORDERS), producers="p")
        assert (clients.group("g"), clients.producers("p"), clients.find("c")) == (None, [], None)


async def test_producers_are_picked_in_turn_and_only_open_ones() -> None:
    clients = Clients()
    async with connections(3) as found:
        for number, connection in enumerate(found):
            beat(clients, connection, f"p{number}", producers="p")
        picked = [member.client_id for _ in range(4) if (member := clients.pick_producer("p")) is not None]
        assert picked == ["p0", "p1", "p2", "p0"]
        found[1].close()
        picked = [member.client_id for _ in range(4) if (member := clients.pick_producer("p")) is not None]
        assert sorted(set(picked)) == ["p0", "p2"]
        assert clients.pick_producer("unknown") is None


async def test_a_client_is_found_at_the_connection_with_the_newest_heartbeat() -> None:
    clients = Clients()
    async with connections(2) as (old, new):
        beat(clients, old, "c", producers="p")
        beat(clients, new, "c", consumer("g", ORDERS), now=1)
        assert (member := clients.find("c")) is not None
        assert member.connection is new
        new.close()
        assert (member := clients.find("c")) is not None
        assert member.connection is old


def test_the_newest_heartbeat_replaces_the_topics_and_the_newest_version_each_expression() -> None:
    group = ConsumerGroup("g")
    assert group.subscribe([subscription("a", "x", version=5), subscription("b")])
    assert group.subscribe([subscription("a", "y", version=4), subscription("c")])
    assert {topic: subscription.sub_string for topic, subscription in group.subscriptions.items()} == {
        "a": "x",
        "c": "*",
    }
    assert not group.subscribe([subscription("a", "z", version=6), subscription("c")])
    assert group.subscriptions["a"].sub_string == "z"


async def test_a_disagreement_of_members_is_reported_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    found: list[Disagreement] = []
    clients = Clients(on_disagreement=found.append)
    async with connections(2) as (one, two):
        with caplog.at_level(logging.WARNING, "ariane.broker.groups.members"):
            beat(clients, one, "one", consumer("g", subscription("orders", "a")))
            beat(clients, two, "two", consumer("g", subscription("orders", "b")))
            for _ in range(3):
                beat(clients, one, "one", consumer("g", subscription("orders", "a", version=2)))
                beat(clients, two, "two", consumer("g", subscription("orders", "b", version=3)))
        assert found == [Disagreement("g", "two", "one", ("orders",))]
        assert clients.disagreements == 1
        (record,) = caplog.records
        facts = {name: getattr(record, name) for name in ("group", "topics", "client", "other")}
        assert facts == {"group": "g", "topics": "orders", "client": "two", "other": "one"}
        beat(clients, two, "two", consumer("g", subscription("orders", "a", version=4)))
        assert (group := clients.group("g")) is not None
        assert group.agrees
        beat(clients, two, "two", consumer("g", subscription("orders", "a", version=4), subscription("bills")))
        assert not group.agrees
        assert found[1:] == [Disagreement("g", "two", "one", ("bills",))]
        clients.remove(one)
        assert group.agrees
