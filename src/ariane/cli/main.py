"""The command tree, and the one place where an error becomes a line on stderr and an exit code.

0 done    1 the answer is no    2 usage or settings    3 cannot reach    4 refused    70 a fault in Ariane    130 Ctrl-C
"""

import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import click

from ariane import __version__
from ariane.cli.bench import bench
from ariane.cli.cluster import cluster
from ariane.cli.config import config
from ariane.cli.doctor import doctor
from ariane.cli.learn import learn
from ariane.cli.send import send
from ariane.cli.servers import namesrv
from ariane.cli.sql import sql
from ariane.cli.store import store
from ariane.cli.tail import tail
from ariane.cli.top import top
from ariane.cli.tree import admin, broker, dlq, group, msg, pipeline, topic
from ariane.cli.up import up
from ariane.errors import ArianeError, sole_cause

EXIT_BROKEN_PIPE = 1
EXIT_FAULT = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # what shells report for a program that SIGINT ended


@dataclass(slots=True)
class Invocation:
    """What `main` must still know when the command has failed and click's context is gone."""

    debug: bool = False


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ariane")
@click.option(
    "--debug", is_flag=True, envvar="ARIANE_DEBUG", help="Show the traceback of an error (or ARIANE_DEBUG=1)."
)
@click.pass_obj
def ariane(invocation: Invocation, debug: bool) -> None:
    """A message broker that speaks Apache RocketMQ's wire protocol.

    \b
    Start a nameserver and a broker on this machine:
      ariane namesrv
      ariane broker -n 127.0.0.1:9876
    """
    invocation.debug = debug


ariane.add_command(up)
ariane.add_command(send)
ariane.add_command(tail)
ariane.add_command(topic)
ariane.add_command(group)
ariane.add_command(msg)
ariane.add_command(dlq)
ariane.add_command(pipeline)
ariane.add_command(admin)
ariane.add_command(cluster)
ariane.add_command(top)
ariane.add_command(namesrv)
ariane.add_command(broker)
ariane.add_command(store)
ariane.add_command(sql)
ariane.add_command(config)
ariane.add_command(doctor)
ariane.add_command(bench)
ariane.add_command(learn)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    invocation = Invocation()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = ariane.main(arguments or ["--help"], prog_name="ariane", standalone_mode=False, obj=invocation)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        return _refuse_usage(error)
    except BrokenPipeError:
        return _reader_gone()
    except Exception as error:  # the edge of the process: whatever is left becomes one sentence
        if invocation.debug:
            traceback.print_exc()
        return _fail(sole_cause(error))
    return status if isinstance(status, int) else 0


def _fail(error: Exception) -> int:
    if isinstance(error, ArianeError):
        click.echo(f"error: {error}", err=True)
        return error.exit_status
    told = " ".join(f"{type(error).__name__}: {error}".split())
    cure = "This is a fault in Ariane; run it again with --debug or ARIANE_DEBUG=1 to see the traceback."
    click.echo(f"error: unexpected {told}. {cure}", err=True)
    return EXIT_FAULT


def _refuse_usage(error: click.ClickException) -> int:
    told = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    cure = f" Try '{context.command_path} --help'." if context is not None else ""
    click.echo(f"error: {told}.{cure}", err=True)
    return error.exit_code


def _reader_gone() -> int:
    """`ariane ... | head`: keep the interpreter from failing once more when it flushes stdout at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    click.echo("error: whoever was reading the output has gone", err=True)
    return EXIT_BROKEN_PIPE
