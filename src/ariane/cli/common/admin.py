"""Shared code of the admin commands: run admin calls, report partial results, ask for confirmation.

The client is imported inside a call, so that --help stays fast.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ariane.cli.common.connection import Connection
from ariane.errors import ArianeError, ClientError, NoRoute, RequestFailed, TransportError

if TYPE_CHECKING:
    from ariane.client.admin import Admin
    from ariane.client.admin.requests import Broker, Failure
    from ariane.client.settings import ClientSettings

T = TypeVar("T")
Command = Callable[..., Any]

INCOMPLETE = TransportError.exit_status


def run_admin(connection: Connection, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Returns what `work` returns, or raises its error with the exit status for that kind of error."""
    from ariane.client.admin import Admin

    async def run(settings: ClientSettings) -> T:
        async with Admin(settings=settings) as admin:
            try:
                return await work(admin)
            except NoRoute as error:
                await admin.cluster.map()  # raises when no nameserver responds: that is the real error then
                raise ClientError(str(error)) from error  # exit status 1: the topic does not exist
            except ClientError as error:
                raise _reason_of(error) from error

    return connection.run(run)


def _reason_of(error: ClientError) -> ArianeError:
    """For a ClientError that stands for failures at several servers: the worst of them decides the exit status."""
    causes = error.__cause__.exceptions if isinstance(error.__cause__, ExceptionGroup) else ()
    for cause in causes:
        if isinstance(cause, TransportError):
            return TransportError(str(error))
    for cause in causes:
        if isinstance(cause, RequestFailed):
            return RequestFailed(cause.code, str(error))
    return error


def report_missing(failures: Iterable[Failure]) -> int:
    """Prints a line for each server that the result lacks. Returns the exit status: 0 if the result is complete."""
    missing = list(failures)
    for failure in missing:
        click.echo(f"incomplete: no data from {failure}", err=True)
    return INCOMPLETE if missing else 0


def confirm(question: str, *, yes: bool) -> None:
    """Returns if the user agrees. Without a terminal there is no user to ask, so --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation without a terminal: add --yes", click.get_current_context())
    if not click.confirm(question, err=True):
        raise ClientError("cancelled: nothing was changed")


def broker_options(command: Command) -> Command:
    """`--cluster` and `--broker`, for commands that apply to all brokers unless some are named."""
    cluster = click.option("--cluster", metavar="NAME", help="Only the brokers of this cluster.")
    broker = click.option("--broker", metavar="NAME|HOST:PORT", help="Only this broker.")
    return cluster(broker(command))


def yes_option(command: Command) -> Command:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def broker_rows(brokers: Iterable[Broker]) -> list[dict[str, object]]:
    """The brokers where a change was made."""
    return [{"brokerName": broker.name, "address": broker.address} for broker in brokers]
