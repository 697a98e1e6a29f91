"""The command tree, and the one place where an error becomes a line on stderr and an exit code.

0 done    1 the answer is no    2 usage or settings    3 cannot reach    4 refused    70 a fault in Ariane    130 Ctrl-C
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from ariane import __version__
from ariane.cli.root import Root
from ariane.cli.streams import prepare_streams
from ariane.errors import ArianeError, sole_cause

EXIT_NO = 1
EXIT_FAULT = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # what shells report for a program that SIGINT ended


@dataclass(slots=True)
class Invocation:
    """What `main` must still know when the command has failed and click's context is gone."""

    debug: bool = False


@click.group(
    cls=Root,
    homes={
        "up": "ariane.cli.up",
        "send": "ariane.cli.send",
        "tail": "ariane.cli.tail",
        "topic": "ariane.cli.tree",
        "group": "ariane.cli.tree",
        "msg": "ariane.cli.tree",
        "dlq": "ariane.cli.tree",
        "pipeline": "ariane.cli.tree",
        "admin": "ariane.cli.tree",
        "cluster": "ariane.cli.cluster",
        "top": "ariane.cli.top",
        "namesrv": "ariane.cli.servers",
        "broker": "ariane.cli.tree",
        "store": "ariane.cli.store",
        "sql": "ariane.cli.sql",
        "config": "ariane.cli.config",
        "doctor": "ariane.cli.doctor",
        "bench": "ariane.cli.bench",
        "learn": "ariane.cli.learn",
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="ariane")
@click.option(
    "--debug", is_flag=True, envvar="ARIANE_DEBUG", help="Show the traceback of an error (or ARIANE_DEBUG=1)."
)
@click.pass_obj
def ariane(invocation: Invocation, debug: bool) -> None:
    """A message broker that speaks Apache RocketMQ's wire protocol.

    \b
    Examples:
      ariane up                                # a nameserver and a broker on this machine
      ariane send orders hello                 # in another terminal, in the same directory
      ariane tail orders --from earliest
      ariane doctor                            # is anything wrong here?
    """
    invocation.debug = debug


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    prepare_streams()
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
            import traceback

            traceback.print_exc()
        return _fail(sole_cause(error))
    return status if isinstance(status, int) else 0


def _fail(error: Exception) -> int:
    if isinstance(error, ArianeError):
        click.echo(f"error: {error}", err=True)
        return error.exit_status
    if isinstance(error, OSError) and error.strerror is not None:  # a disk or a permission, and no fault of ours
        where = error.filename if error.filename is not None else "reading or writing failed"
        click.echo(f"error: {where}: {error.strerror}", err=True)
        return EXIT_NO
    told = " ".join(f"{type(error).__name__}: {error}".split())
    cure = "This is a fault in Ariane; run it again with --debug or ARIANE_DEBUG=1 to see the traceback."
    click.echo(f"error: unexpected {told}. {cure}", err=True)
    return EXIT_FAULT


def _refuse_usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # `ariane topic`: its message is the whole help
        click.echo(error.format_message(), err=True)
        return error.exit_code
    told = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    cure = f" Try '{context.command_path} --help'." if context is not None else ""
    click.echo(f"error: {told}.{cure}", err=True)
    return error.exit_code


def _reader_gone() -> int:
    """`ariane ... | head`: keep the interpreter from failing once more when it flushes stdout at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    click.echo("error: whoever was reading the output has gone", err=True)
    return EXIT_NO
