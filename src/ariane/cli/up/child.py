"""Broker process of `ariane up --brokers N`: `python -m ariane.cli.up.child FLAGS LOG_LEVEL`.

It serves until its stdin is closed. The pipe closes with the parent process, so no broker outlives the command that
started it, even if that was killed. On stdout it prints one line: that it is ready, or why it is not.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from functools import partial

from ariane.cli.servers.garbage_collector import collector_disabled
from ariane.errors import ArianeError, sole_cause
from ariane.model.address import Address

FAILED = "failed "
EXIT_BUG = 70


@collector_disabled()
def main(arguments: list[str]) -> int:
    from ariane.cli.servers.run import run_server
    from ariane.cli.up.command import up_broker_settings
    from ariane.logs import LogForm, configure

    flags, log_level = json.loads(arguments[0]), arguments[1]
    configure(log_level, LogForm.TEXT, sys.stderr)
    try:
        run_server(flags["name"], partial(_serve, up_broker_settings(flags, os.environ)))
    except Exception as error:  # the parent process reports it, in one line
        return _fail(sole_cause(error))
    return 0


async def _serve(settings: object, stop: asyncio.Event, *, ready: Callable[[Address], None]) -> None:
    from ariane.broker.server import serve
    from ariane.broker.settings import BrokerSettings

    assert isinstance(settings, BrokerSettings)
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()
    loop.add_reader(stdin, _on_stdin, loop, stdin, stop)
    await serve(settings, stop, ready=ready)


def _on_stdin(loop: asyncio.AbstractEventLoop, stdin: int, stop: asyncio.Event) -> None:
    if not os.read(stdin, 1024):
        loop.remove_reader(stdin)
        stop.set()


def _fail(error: Exception) -> int:
    cause = {"kind": type(error).__name__, "text": str(error)}
    sys.stdout.write(f"{FAILED}{json.dumps(cause)}\n")
    sys.stdout.flush()
    return error.exit_status if isinstance(error, ArianeError) else EXIT_BUG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
