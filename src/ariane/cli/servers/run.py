"""Runs a server in the foreground: event loop, signals and the ready line."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

import click

from ariane.cli.servers.garbage_collector import enable_collector
from ariane.model.address import Address

log = logging.getLogger(__name__)


class Serve(Protocol):
    """A server: calls `ready` once with its listen address, and returns after `stop` is set."""

    def __call__(self, stop: asyncio.Event, *, ready: Callable[[Address], None]) -> Coroutine[Any, Any, None]: ...


def run_server(name: str, serve: Serve) -> None:
    """Returns after SIGINT or SIGTERM and a clean stop; raises what the server raises."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_until_signalled(name, serve))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _until_signalled(name: str, serve: Serve) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, stop, number)
    await serve(stop, ready=partial(_announce, name))


def _on_signal(stop: asyncio.Event, number: signal.Signals) -> None:
    """The first signal requests a clean stop, the second one exits at once."""
    if stop.is_set():
        os._exit(128 + number)
    log.info("stopping", extra={"signal": number.name})
    stop.set()


def _announce(name: str, address: Address) -> None:
    """Scripts wait for this line, so its format is fixed, and it is the only one on stdout."""
    enable_collector()
    click.echo(f"ariane {name} ready on {address} (pid {os.getpid()})")
