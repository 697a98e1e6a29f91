"""Faults of a master, of its slaves and of the links between them: what each does, and for how long.

    while it lasts     kill, pause, cut, reset, slow, full, empty     sends get other statuses than SEND_OK
    when it is over    everything runs and is connected again         the slave catches up

Times are chosen around the two that decide what a master does: `slaveTimeout` ends the wait of a send, and
`haHousekeepingInterval` ends a silent connection.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from ariane.errors import ArianeError
from tests.chaos.network import Namespaces
from tests.chaos.replicas import CATCH_UP_S, HOUSEKEEPING_S, SLAVE_TIMEOUT_S, Member, Replicas
from tests.store.test_full_disk import ballast

DURATIONS_S = {
    "short": SLAVE_TIMEOUT_S / 2,
    "beyond slaveTimeout": (SLAVE_TIMEOUT_S + HOUSEKEEPING_S) / 2,
    "beyond haHousekeepingInterval": HOUSEKEEPING_S * 1.5,
}
SLOW_KBIT_S = 400
SLOW_S = 4.0
FULL_S = 15.0

Inject = Callable[[Replicas, random.Random, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    inject: Inject
    duration_s: float = 0.0
    is_of_network: bool = True
    """Whether it needs namespaces, or a disk of the slave's own: both need root."""

    async def __call__(self, replicas: Replicas, rng: random.Random) -> None:
        await self.inject(replicas, rng, self.duration_s * rng.uniform(0.8, 1.2))


# --- processes --------------------------------------------------------------------------------------------------------


async def kill_master(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    await _restarted(replicas.master, rng)


async def kill_slave(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    await _restarted(rng.choice(replicas.slaves), rng)


async def kill_both(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    """The master and every slave."""
    await asyncio.gather(*(_restarted(member, rng) for member in replicas.members))


async def _restarted(member: Member, rng: random.Random) -> None:
    pause_s = rng.uniform(0.0, 0.5)
    await member.process.kill()
    await asyncio.sleep(pause_s)
    await member.process.start()


async def pause_master(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    await _paused(replicas.master, duration_s)


async def pause_slave(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    await _paused(rng.choice(replicas.slaves), duration_s)


async def pause_slaves(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    await asyncio.gather(*(_paused(slave, duration_s) for slave in replicas.slaves))


async def _paused(member: Member, duration_s: float) -> None:
    member.process.pause()
    try:
        await asyncio.sleep(duration_s)
    finally:
        member.process.resume()


async def empty_slave(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    """It is over with the first SEND_OK of a message sent later: only then does the promise hold again."""
    await replicas.emptied(rng.choice(replicas.slaves))
    began = time.monotonic()
    while replicas.sent_ok() < began:
        assert time.monotonic() < began + CATCH_UP_S, "no SEND_OK after a slave was emptied"
        await asyncio.sleep(0.02)


# --- links ------------------------------------------------------------------------------------------------------------


def _network(replicas: Replicas) -> Namespaces:
    assert isinstance(replicas.network, Namespaces), "a fault of the network needs namespaces"
    return replicas.network


def _others(replicas: Replicas, member: Member, rng: random.Random) -> list[str]:
    """Either only the other members, or also the nameserver and all clients."""
    hosts = [other.node.host for other in replicas.members if other is not member]
    return hosts if rng.random() < 0.6 else [*hosts, replicas.network.host]


async def _during(replicas: Replicas, member: Member, duration_s: float, call: Callable[[], None]) -> None:
    network = _network(replicas)
    try:
        await asyncio.to_thread(call)
        await asyncio.sleep(duration_s)
    finally:
        await asyncio.to_thread(network.heal, member.node)


async def isolate_master(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    network, master = _network(replicas), replicas.master
    peers = _others(replicas, master, rng)
    await _during(replicas, master, duration_s, lambda: network.drop(master.node, peers))


async def isolate_slave(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    network, slave = _network(replicas), rng.choice(replicas.slaves)
    peers = _others(replicas, slave, rng)
    await _during(replicas, slave, duration_s, lambda: network.drop(slave.node, peers))


async def deafen_slave(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    """What the master sends is lost; what the slave sends arrives."""
    network, slave, peers = _network(replicas), rng.choice(replicas.slaves), [replicas.master.node.host]
    await _during(replicas, slave, duration_s, lambda: network.drop(slave.node, peers, outgoing=False))


async def mute_slave(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    """What the slave sends is lost; what the master sends arrives."""
    network, slave, peers = _network(replicas), rng.choice(replicas.slaves), [replicas.master.node.host]
    await _during(replicas, slave, duration_s, lambda: network.drop(slave.node, peers, incoming=False))


async def reset_links(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    network, slave, peers = _network(replicas), rng.choice(replicas.slaves), [replicas.master.node.host]
    await _during(replicas, slave, duration_s, lambda: network.reset(slave.node, peers))


async def slow_links(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    """All slaves get less than the producers send, and fall behind `haSlaveFallbehindMax`."""
    network = _network(replicas)
    await asyncio.gather(
        *(
            _during(replicas, slave, duration_s, lambda slave=slave: network.slow_down(slave.node, SLOW_KBIT_S))  # type: ignore[misc]
            for slave in replicas.slaves
        )
    )


# --- disks ------------------------------------------------------------------------------------------------------------


async def fill_disk(replicas: Replicas, rng: random.Random, duration_s: float) -> None:
    """Until the slave has taken nothing for a second; in one of two cases it is killed like this, too."""
    slave = rng.choice(replicas.slaves)
    try:
        await _fill(slave, "ballast")
        await _until_stuck(replicas, slave)
        if rng.random() < 0.5:
            await slave.process.kill()
            await slave.process.start()
            await _fill(slave, "more")
            await _until_stuck(replicas, slave)
    finally:
        for name in _BALLASTS:
            (slave.disk / name).unlink(missing_ok=True)


_BALLASTS = ("ballast", "more")


async def _fill(slave: Member, name: str) -> None:
    """The slave stands still meanwhile: what its reserve gives up is for the slave."""
    slave.process.pause()
    try:
        await asyncio.to_thread(ballast, slave.disk, name)
    finally:
        slave.process.resume()


async def _until_stuck(replicas: Replicas, slave: Member) -> None:
    end, last = time.monotonic() + FULL_S, (-1, 0.0)
    while time.monotonic() < end and slave.process.is_running:
        with suppress(ArianeError):
            log_end = await replicas.log_end(slave)
            if log_end != last[0]:
                last = (log_end, time.monotonic())
            elif time.monotonic() - last[1] > 1.0 and await replicas.log_end(replicas.master) > log_end:
                return
        await asyncio.sleep(0.1)


# --- the end of the master --------------------------------------------------------------------------------------------

Ending = Callable[[Replicas, random.Random], Awaitable[None]]


async def end_master(replicas: Replicas, rng: random.Random) -> None:
    await replicas.master.process.kill()


async def end_master_while_slaves_are_down(replicas: Replicas, rng: random.Random) -> None:
    """No broker is left for a moment, so nameservers forget the topics: a slave alone does not bring them back, as in
    Apache. Clients find them again when it is made the master."""
    replicas.has_route = False
    for slave in replicas.slaves:
        await slave.process.kill()
        await asyncio.sleep(rng.uniform(0.0, 0.5))
    await asyncio.sleep(rng.uniform(0.3, 1.0))
    await end_master(replicas, rng)
    for slave in replicas.slaves:
        await slave.process.start()


async def end_master_while_slaves_are_paused(replicas: Replicas, rng: random.Random) -> None:
    for slave in replicas.slaves:
        slave.process.pause()
    await asyncio.sleep(rng.uniform(0.3, 1.5) * SLAVE_TIMEOUT_S)
    await end_master(replicas, rng)
    for slave in replicas.slaves:
        slave.process.resume()


async def end_master_while_isolated(replicas: Replicas, rng: random.Random) -> None:
    """From one slave after the other, so that each has another part of what was sent in that time."""
    network, master = _network(replicas), replicas.master
    for slave in rng.sample(replicas.slaves, len(replicas.slaves)):
        await asyncio.to_thread(network.drop, master.node, [slave.node.host])
        await asyncio.sleep(rng.uniform(0.0, 1.5) * SLAVE_TIMEOUT_S)
    await end_master(replicas, rng)
    await asyncio.to_thread(network.heal, master.node)


ENDINGS = (end_master, end_master_while_slaves_are_down, end_master_while_slaves_are_paused)


# --- the plan ---------------------------------------------------------------------------------------------------------


def _timed(name: str, inject: Inject, *, is_of_network: bool) -> list[Fault]:
    return [Fault(f"{name}, {text}", inject, s, is_of_network) for text, s in DURATIONS_S.items()]


FAULTS: tuple[Fault, ...] = (
    *[Fault("kill -9 of the master", kill_master, is_of_network=False)] * 2,
    *[Fault("kill -9 of a slave", kill_slave, is_of_network=False)] * 2,
    *[Fault("kill -9 of master and slaves", kill_both, is_of_network=False)] * 2,
    *_timed("master paused", pause_master, is_of_network=False),
    *_timed("a slave paused", pause_slave, is_of_network=False),
    Fault("all slaves paused", pause_slaves, DURATIONS_S["beyond slaveTimeout"], is_of_network=False),
    Fault("a slave emptied", empty_slave, is_of_network=False),
    *_timed("master isolated", isolate_master, is_of_network=True),
    *_timed("a slave isolated", isolate_slave, is_of_network=True),
    *_timed("a slave hears nothing", deafen_slave, is_of_network=True),
    *_timed("a slave is not heard", mute_slave, is_of_network=True),
    Fault("connections reset", reset_links, DURATIONS_S["short"]),
    Fault("slow links", slow_links, SLOW_S),
    Fault("disk of a slave full", fill_disk),
)


def plan(count: int, rng: random.Random, *, with_network: bool) -> list[Fault]:
    """Every fault as often as every other, in an order that the seed chooses."""
    faults = [fault for fault in FAULTS if with_network or not fault.is_of_network]
    chosen: list[Fault] = []
    while len(chosen) < count:
        chosen += rng.sample(faults, len(faults))
    return chosen[:count]
