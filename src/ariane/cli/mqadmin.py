"""The program `mqadmin`: Apache's name for `ariane admin`, so that scripts need no change."""

import sys
from collections.abc import Sequence

from ariane.cli.main import main as ariane_main

_HELP = "help"


def main(arguments: Sequence[str] | None = None) -> int:
    """`mqadmin help NAME` is Apache's way to ask for the help of a command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == [_HELP]:
        given = [*given[1:2], "--help"]
    return ariane_main(["admin", *(given or ["--help"])])


if __name__ == "__main__":
    sys.exit(main())
