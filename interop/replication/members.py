"""One broker of a master/slave pair as a process: it can be killed, paused and started again with the same store."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from interop.apache import SERVER_VERSION, VERSION_5, BrokerPlan, start_broker
from interop.broker.servers import COMMAND
from interop.processes import paused, running

LOG_FILE_BYTES = 64 << 10
"""Small, so that 10,000 messages fill nearly two hundred files. Apache's brokers take any size."""


@dataclass(frozen=True, slots=True)
class Vendor:
    name: str
    version: str | None
    """Apache's; None for Ariane."""

    def run(self, plan: BrokerPlan, home: Path) -> AbstractContextManager[int]:
        """A broker, while the block runs; its process id."""
        return _our_broker(plan, home) if self.version is None else start_broker(plan, home, version=self.version)


VENDORS = {
    "ariane": Vendor("Ariane", None),
    "apache4": Vendor(f"Apache {SERVER_VERSION}", SERVER_VERSION),
    "apache5": Vendor(f"Apache {VERSION_5}", VERSION_5),
}


@contextlib.contextmanager
def _our_broker(plan: BrokerPlan, home: Path) -> Iterator[int]:
    home.mkdir(parents=True, exist_ok=True)
    config = home / "broker.conf"
    config.write_text(plan.properties(home))
    command = [*COMMAND, "broker", "-c", str(config)]
    with running(command, ready="ready", log=home / "broker.log") as process_id:
        yield process_id


@dataclass(slots=True)
class Member:
    vendor: Vendor
    plan: BrokerPlan
    home: Path
    life: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    process_id: int | None = None
    """None while it does not run."""

    @property
    def commit_log(self) -> Path:
        return self.home / "store" / "commitlog"

    @property
    def config(self) -> Path:
        return self.home / "store" / "config"

    async def start(self, **changes: str) -> None:
        """Returns when it serves requests. `changes` are settings that it has from now on."""
        self.plan = replace(self.plan, settings={**self.plan.settings, **changes})
        self.process_id = await asyncio.to_thread(self.life.enter_context, self.vendor.run(self.plan, self.home))

    async def stop(self) -> None:
        """As an operator stops it. Does nothing if it does not run."""
        if self.process_id is not None:
            # A paused process would not notice.
            self._signal(signal.SIGCONT)
        await self._end()

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        await self._end()

    def paused(self) -> AbstractContextManager[None]:
        assert self.process_id is not None, f"{self.vendor.name} does not run"
        return paused(self.process_id)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process_id is not None, f"{self.vendor.name} does not run"
        os.kill(self.process_id, number)

    async def _end(self) -> None:
        self.process_id = None
        await asyncio.to_thread(self.life.close)
