"""Kills a broker again and again under ordered, delayed, transactional and retried traffic, and checks the history.

    python -m tests.chaos.kills [KILLS] [SEED]

The exit status is 1 if a rule was broken. Members of the ordered group never work on one queue at once, no group's
offset goes back, nothing acknowledged is lost, nothing is delivered early, or twice without a kill as the reason, or
though its transaction was rolled back.
"""

import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from ariane.client.admin import Admin
from ariane.clock import Clock
from ariane.rpc.caller import Caller
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from tests.chaos.traffic import DELAY_LEVELS, Kind, kinds
from tests.cluster.processes import ServerProcess, properties, server
from tests.simulation.delivery_history import COMMIT_S, SETTLED_S

KILLS = 200
BROKER = "broker-a"
UP_S = (1.0, 3.0)
IN_A_ROW = 10
QUIET_S = COMMIT_S + SETTLED_S + 5.0
"""After that many kills: what comes twice in this time has no kill as the reason."""
COMPLETE_S = 90.0


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[tuple[str, ServerProcess]]:
    file = properties(
        directory / "broker.conf",
        {
            "brokerName": BROKER,
            "storePathRootDir": directory / "store",
            "mappedFileSizeCommitLog": 64 * 1024 * 1024,
            "flushDiskType": "ASYNC_FLUSH",  # what is in the page cache outlives a killed process
            "messageDelayLevel": DELAY_LEVELS,
            "transactionCheckInterval": 1000,
            "transactionTimeOut": 1000,
        },
    )
    async with server(directory / "namesrv.log", "namesrv", "--listen", "127.0.0.1:0") as nameserver:
        arguments = ("broker", "-c", str(file), "-n", nameserver.address, "--listen", "127.0.0.1:0")
        async with server(directory / "broker.log", *arguments) as broker:
            broker.keep_address()
            yield nameserver.address, broker


async def observe(traffic: Sequence[Kind], broker: str, stopped: asyncio.Event) -> None:
    async with Pool.open(TransportSettings(), Clock(), lambda connection, command: None) as pool:
        while not stopped.is_set():
            for kind in traffic:
                await kind.observe(Caller(pool), broker, BROKER)
            await asyncio.sleep(0.05)


async def kill(broker: ServerProcess, traffic: Sequence[Kind]) -> None:
    began_s = time.time()
    await broker.kill()
    await broker.start()
    for kind in traffic:
        kind.history.fault(began_s, time.time())


async def until_complete(traffic: Sequence[Kind]) -> None:
    """Returns when everything acknowledged is delivered, or when it has taken too long: the rules say what is lost."""
    end = time.monotonic() + COMPLETE_S
    for kind in traffic:
        while time.monotonic() < end and not kind.history.is_complete:
            kind.history.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await kind.history.news.wait()


async def run(directory: Path, kill_count: int, traffic: Sequence[Kind], seed: int = 0) -> None:
    """Fills the histories of `traffic`."""
    rng = random.Random(seed)
    stopped, ended = asyncio.Event(), asyncio.Event()
    async with cluster(directory) as (nameserver, broker), asyncio.TaskGroup() as tasks, AsyncExitStack() as stack:
        async with Admin(nameserver) as admin:
            for kind in traffic:
                await admin.topics.create(kind.name, read_queues=kind.queues, write_queues=kind.queues)
        joining_s = time.time()
        for kind in traffic:
            await stack.enter_async_context(kind.consuming(nameserver))
            for number in range(kind.producers):
                tasks.create_task(kind.produce(f"{kind.name}:{number}", nameserver, stopped, ended))
        tasks.create_task(observe(traffic, broker.address, ended))
        for kind in traffic:  # while members join, queues change hands as after a kill
            kind.history.fault(joining_s, time.time())
        for number in range(kill_count):
            await asyncio.sleep(rng.uniform(*UP_S))
            await kill(broker, traffic)
            if number % IN_A_ROW == IN_A_ROW - 1:
                await asyncio.sleep(QUIET_S)
                print(f"{number + 1} kills")
                print(*(f"  {kind.name}: {kind.history.summary()}" for kind in traffic), sep="\n", flush=True)
        await asyncio.sleep(UP_S[0])
        stopped.set()
        await until_complete(traffic)
        ended.set()


def main() -> int:
    logging.basicConfig(level=logging.CRITICAL)  # clients of a killed broker complain without end
    kill_count = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"{kill_count} kills, seed {seed}")
    traffic = kinds()
    with tempfile.TemporaryDirectory(prefix="ariane-kills-") as directory:
        asyncio.run(run(Path(directory), kill_count, traffic, seed))
    broken = 0
    for kind in traffic:
        print(f"{kind.name}: {kind.history.summary()}")
        for rule, faults in kind.history.violations().items():
            broken += 1
            print(f"  {rule}: {len(faults)}", *(f"    {fault}" for fault in faults[:5]), sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
