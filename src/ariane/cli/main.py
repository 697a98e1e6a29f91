"""The root command `ariane`, and the one place where an error becomes a line on stderr and an exit status.

`errors.EXIT_STATUSES` says what each status means.
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


class Root(click.Group):
    """The group `ariane`. It imports only the module of the command that was typed, which keeps start-up fast.

    Its own help, completion, and an unknown name (to suggest a similar one) import all modules.
    """

    def __init__(self, *arguments: Any, modules: Mapping[str, str], **attributes: Any) -> None:
        """`modules`: from the name of a command to the module that defines it under that name."""
        super().__init__(*arguments, **attributes)
        self._modules = modules

    def list_commands(self, context: click.Context) -> list[str]:
        self._load(*self._modules)
        return super().list_commands(context)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        self._load(*([name] if name in self._modules else self._modules))
        return super().get_command(context, name)

    def _load(self, *names: str) -> None:
        for name in names:
            if name not in self.commands:
                self.add_command(getattr(import_module(self._modules[name]), name), name)


def prepare_streams() -> None:
    """Opens stdin, stdout and stderr where they are closed. Call it before any file is opened.

    A process may be started with some of them closed, as by `ariane broker >&-` or a careless supervisor. Then Python
    sets them to None, and the next file or socket gets their descriptors: printed text would go into a commit log.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in this order each gets its descriptor
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            _escape_unencodable(stream)


def _escape_unencodable(stream: TextIOWrapper) -> None:
    """Text that the encoding lacks is escaped. ASCII means that no encoding was chosen: use UTF-8 then."""
    is_ascii = codecs.lookup(stream.encoding).name == "ascii"
    stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")


EXIT_NO = 1
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # what shells report for a program that SIGINT ended


@dataclass(slots=True)
class Invocation:
    """Options that `main` needs after the command has failed, when click's context is gone."""

    debug: bool = False


@click.group(
    cls=Root,
    modules={
        "up": "ariane.cli.up.command",
        "send": "ariane.cli.send.command",
        "tail": "ariane.cli.tail.command",
        "topic": "ariane.cli.tree",
        "group": "ariane.cli.tree",
        "msg": "ariane.cli.tree",
        "dlq": "ariane.cli.tree",
        "pipeline": "ariane.cli.tree",
        "admin": "ariane.cli.tree",
        "cluster": "ariane.cli.tree",
        "top": "ariane.cli.top.command",
        "namesrv": "ariane.cli.servers.command",
        "broker": "ariane.cli.tree",
        "store": "ariane.cli.store.command",
        "sql": "ariane.cli.sql.command",
        "config": "ariane.cli.config.command",
        "acl": "ariane.cli.tree",
        "doctor": "ariane.cli.doctor.command",
        "learn": "ariane.cli.learn.command",
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="ariane")
@click.option(
    "--debug", is_flag=True, envvar="ARIANE_DEBUG", help="Show the traceback of an error (or set ARIANE_DEBUG=1)."
)
@click.pass_obj
def ariane(invocation: Invocation, debug: bool) -> None:
    """A message broker that speaks Apache RocketMQ's wire protocol.

    \b
    Examples:
      ariane up                                # a nameserver and a broker on this machine
      ariane send orders hello                 # in another terminal, in the same directory
      ariane tail orders --from earliest
      ariane doctor                            # look for problems
    """
    invocation.debug = debug


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    prepare_streams()
    invocation = Invocation()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = ariane.main(arguments or ["--help"], prog_name="ariane", standalone_mode=False, obj=invocation)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        return _report_usage(error)
    except BrokenPipeError:
        return _pipe_closed()
    except Exception as error:  # last resort: any other error becomes one line
        if invocation.debug:
            import traceback

            traceback.print_exc()
        return _fail(sole_cause(error))
    return status if isinstance(status, int) else 0


def _fail(error: Exception) -> int:
    if isinstance(error, ArianeError):
        click.echo(f"error: {error}", err=True)
        return error.exit_status
    if isinstance(error, OSError) and error.strerror is not None:  # a disk or permission problem, not a bug
        where = error.filename if error.filename is not None else "reading or writing failed"
        click.echo(f"error: {where}: {error.strerror}", err=True)
        return EXIT_NO
    cause = " ".join(f"{type(error).__name__}: {error}".split())
    hint = "This is a bug in Ariane; run the command again with --debug or ARIANE_DEBUG=1 to see the traceback."
    click.echo(f"error: unexpected {cause}. {hint}", err=True)
    return EXIT_BUG


def _report_usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # `ariane topic`: the message is the help text
        click.echo(error.format_message(), err=True)
        return error.exit_code
    cause = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    hint = f" Try '{context.command_path} --help'." if context is not None else ""
    click.echo(f"error: {cause}.{hint}", err=True)
    return error.exit_code


def _pipe_closed() -> int:
    """`ariane ... | head`: redirects stdout, or the interpreter would fail again when it flushes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    click.echo("error: output pipe closed", err=True)
    return EXIT_NO
