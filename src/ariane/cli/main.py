"""The command tree, and the one place where an error becomes a line on stderr and an exit code.

0 done    1 the answer is no    2 usage or settings    3 cannot reach    4 refused    70 a fault in Ariane    130 Ctrl-C
"""

import codecs
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from ariane import __version__
from ariane.errors import ArianeError, sole_cause

# --- root ---
#
# The group `ariane`: of all commands it imports the one that was typed, so that a script waits for no other.


class Root(click.Group):
    """Only the root's own help and completion import them all; and a name that is none, to suggest a similar one."""

    def __init__(self, *arguments: Any, homes: Mapping[str, str], **attributes: Any) -> None:
        """`homes`: from the name of a command to the module that has it under that name."""
        super().__init__(*arguments, **attributes)
        self._homes = homes

    def list_commands(self, context: click.Context) -> list[str]:
        self._load(*self._homes)
        return super().list_commands(context)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        self._load(*([name] if name in self._homes else self._homes))
        return super().get_command(context, name)

    def _load(self, *names: str) -> None:
        for name in names:
            if name not in self.commands:
                self.add_command(getattr(import_module(self._homes[name]), name), name)


# --- streams ---
#
# stdin, stdout and stderr as commands rely on them, however the process was started.
#
# A program may be started with some of them closed, as by `ariane broker >&-` or a careless supervisor. Python has None
# in their places then, and the next file or socket gets their numbers: what anybody prints would go into a commit log.


def prepare_streams() -> None:
    """Call it before any file is opened."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in this order each gets its own number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            _make_patient(stream)


def _make_patient(stream: TextIOWrapper) -> None:
    """A name or a body that the encoding does not have is no reason to fail; ASCII only means that none was chosen."""
    is_ascii = codecs.lookup(stream.encoding).name == "ascii"
    stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")


# ---

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
        "up": "ariane.cli.up.command",
        "send": "ariane.cli.send.command",
        "tail": "ariane.cli.tail.command",
        "topic": "ariane.cli.tree",
        "group": "ariane.cli.tree",
        "msg": "ariane.cli.tree",
        "dlq": "ariane.cli.tree",
        "pipeline": "ariane.cli.tree",
        "admin": "ariane.cli.tree",
        "cluster": "ariane.cli.cluster.command",
        "top": "ariane.cli.top.command",
        "namesrv": "ariane.cli.servers.command",
        "broker": "ariane.cli.tree",
        "store": "ariane.cli.store.command",
        "sql": "ariane.cli.sql.command",
        "config": "ariane.cli.config.command",
        "doctor": "ariane.cli.doctor.command",
        "learn": "ariane.cli.learn.command",
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
