"""How the commands of administrators ask a cluster, and how they tell when a part of the answer is missing."""

import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import click

from ariane.cli.common.connection import Connection
from ariane.client.admin import Admin
from ariane.client.admin.requests import Broker, Failure
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError, ClientError, NoRoute, RequestFailed, TransportError

T = TypeVar("T")
Command = Callable[..., Any]

INCOMPLETE = TransportError.exit_status


def run_admin(connection: Connection, work: Callable[[Admin], Awaitable[T]]) -> T:
    """What `work` returns. Its error, with the exit code that tells a person what kind of trouble it is."""

    async def run(settings: ClientSettings) -> T:
        async with Admin(settings=settings) as admin:
            try:
                return await work(admin)
            except NoRoute as error:
                await admin.cluster.map()  # fails when no nameserver answers, which is the trouble then
                raise ClientError(str(error)) from error  # a topic that is not there is an answer
            except ClientError as error:
                raise _reason_of(error) from error

    return connection.run(run)


def _reason_of(error: ClientError) -> ArianeError:
    """Failures at several servers come as one ClientError: that they were not reached, or refused, decides."""
    causes = error.__cause__.exceptions if isinstance(error.__cause__, ExceptionGroup) else ()
    for cause in causes:
        if isinstance(cause, TransportError):
            return TransportError(str(error))
    for cause in causes:
        if isinstance(cause, RequestFailed):
            return RequestFailed(cause.code, str(error))
    return error


def tell_missing(failures: Iterable[Failure]) -> int:
    """A line for each server whose part is missing from the result, and the exit code of such a result."""
    missing = list(failures)
    for failure in missing:
        click.echo(f"incomplete: the part of {failure} is missing", err=True)
    return INCOMPLETE if missing else 0


def confirm(question: str, *, yes: bool) -> None:
    """Returns when the answer is yes. In a script, where nobody answers, --yes has to say so."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask: add --yes to do it", click.get_current_context())
    if not click.confirm(question, err=True):
        raise ClientError("nothing was changed")


def place_options(command: Command) -> Command:
    """`--cluster` and `--broker`, for commands that concern all brokers unless some are named."""
    cluster = click.option("--cluster", metavar="NAME", help="Only the brokers of this cluster.")
    broker = click.option("--broker", metavar="NAME|HOST:PORT", help="Only this broker.")
    return cluster(broker(command))


def yes_option(command: Command) -> Command:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


def broker_rows(brokers: Iterable[Broker]) -> list[dict[str, object]]:
    """Where something was done."""
    return [{"brokerName": one.name, "address": one.address} for one in brokers]
