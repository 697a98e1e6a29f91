"""The program `mqadmin`: Apache's name for `ariane admin`, so that scripts need no change."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ariane.cli.main import main as ariane_main
from ariane.errors import SettingsError

_HELP = "help"


def main(arguments: Sequence[str] | None = None) -> int:
    """`mqadmin help NAME` is Apache's way to ask for the help of a command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == [_HELP]:
        given = [*given[1:2], "--help"]
    return ariane_main(["admin", *(given or ["--help"])])


# --- mqadmin_keys ---
#
# The account that mqadmin signs with: Apache keeps it in $ROCKETMQ_HOME/conf/tools.yml.

_HOME = "ROCKETMQ_HOME"
_VARIABLES = {"accessKey": "ARIANE_CLIENT__ACCESS_KEY", "secretKey": "ARIANE_CLIENT__SECRET_KEY"}


def with_tools_account(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ`, with the account of that file where there is one and our own variables name none."""
    file = Path(environ[_HOME]) / "conf" / "tools.yml" if environ.get(_HOME) else None
    if file is None or not file.is_file() or any(name in environ for name in _VARIABLES.values()):
        return dict(environ)
    found = _read(file)
    return {**environ, **{variable: str(found[key]) for key, variable in _VARIABLES.items() if found.get(key)}}


def _read(file: Path) -> dict[str, object]:
    import yaml

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        told = " ".join(str(error).split())
        raise SettingsError(f"{file} cannot be read: {told}") from error
    if content is not None and not isinstance(content, dict):
        raise SettingsError(f"{file} must have the lines accessKey: NAME and secretKey: SECRET")
    return content or {}
