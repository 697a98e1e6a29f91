"""Broker process of `ariane up` with several: `python -m ariane.cli.up.child LABEL FLAGS LOG_LEVEL`.

It serves until its stdin is closed. The pipe closes with the parent process, so no broker outlives the command that
started it, even if that was killed. On stdout it prints one line: that it is ready, or why it is not. A slave is ready
when it follows its master: from then on a SYNC_MASTER has whom to wait for.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ariane.cli.servers.garbage_collector import collector_disabled
from ariane.errors import ArianeError, sole_cause
from ariane.model.address import Address

if TYPE_CHECKING:
    from ariane.broker.settings import BrokerSettings
    from ariane.replication.slave import Slave

FAILED = "failed "
STOPPING = b"stopping\n"
"""On the stdin of a slave: its master is going to stop."""
EXIT_BUG = 70
_FOLLOW_TIMEOUT_S = 20.0
_LOOK_S = 0.02


@collector_disabled()
def main(arguments: list[str]) -> int:
    from ariane.cli.servers.run import run_server
    from ariane.cli.up.command import up_broker_settings
    from ariane.logs import LogForm, configure

    label, flags, log_level = arguments[0], json.loads(arguments[1]), arguments[2]
    configure(log_level, LogForm.TEXT, sys.stderr)
    try:
        run_server(label, partial(_serve, up_broker_settings(flags, os.environ)))
    except Exception as error:  # the parent process reports it, in one line
        return _fail(sole_cause(error))
    return 0


async def _serve(settings: "BrokerSettings", stop: asyncio.Event, *, ready: Callable[[Address], None]) -> None:
    from ariane.broker.server import running
    from ariane.clock import Clock

    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()
    loop.add_reader(stdin, _on_stdin, loop, stdin, stop)
    _warn_of_replication(not settings.is_slave)
    async with running(settings, Clock()) as broker:
        if broker.replication.slave is not None:
            await _until_following(broker.replication.slave, stop, settings)
        _warn_of_replication(True)
        ready(broker.address)
        await stop.wait()


def _on_stdin(loop: asyncio.AbstractEventLoop, stdin: int, stop: asyncio.Event) -> None:
    if os.read(stdin, 1024):
        _warn_of_replication(False)
    else:
        loop.remove_reader(stdin)
        stop.set()


def _warn_of_replication(is_wanted: bool) -> None:
    """While master and slave start and stop, it is no news that one does not find the other."""
    logging.getLogger("ariane.replication").setLevel(logging.NOTSET if is_wanted else logging.ERROR)


async def _until_following(slave: "Slave", stop: asyncio.Event, settings: "BrokerSettings") -> None:
    from ariane.replication.master_link import REFUSED

    try:
        async with asyncio.timeout(_FOLLOW_TIMEOUT_S):
            while slave.status.master is None and not stop.is_set():
                if (slave.status.reason or "").startswith(REFUSED):
                    raise ArianeError(_not_following(slave, settings))
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise ArianeError(_not_following(slave, settings)) from error


def _not_following(slave: "Slave", settings: "BrokerSettings") -> str:
    return (
        f"the slave of {settings.name} cannot follow it: {slave.status.reason}. To begin "
        f"with an empty slave, remove {settings.store.root}"
    )


def _fail(error: Exception) -> int:
    cause = {"kind": type(error).__name__, "text": str(error)}
    sys.stdout.write(f"{FAILED}{json.dumps(cause)}\n")
    sys.stdout.flush()
    return error.exit_status if isinstance(error, ArianeError) else EXIT_BUG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
