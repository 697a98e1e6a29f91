"""The program `mqadmin`: Apache's name for `ariane admin`, so that scripts need no change."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ariane.cli.main import main as ariane_main
from ariane.errors import SettingsError

_HELP = "help"


def main(arguments: Sequence[str] | None = None) -> int:
    """`mqadmin help NAME` shows the help of a command, as in Apache's tool."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    if args[:1] == [_HELP]:
        args = [*args[1:2], "--help"]
    return ariane_main(["admin", *(args or ["--help"])])


# --- account of Apache's tools, in $ROCKETMQ_HOME/conf/tools.yml ---

_HOME = "ROCKETMQ_HOME"
_VARIABLES = {"accessKey": "ARIANE_CLIENT__ACCESS_KEY", "secretKey": "ARIANE_CLIENT__SECRET_KEY"}


def with_tools_account(environ: Mapping[str, str]) -> dict[str, str]:
    """Adds the account of that file to `environ`, if the file exists and Ariane's own variables are not set."""
    file = Path(environ[_HOME]) / "conf" / "tools.yml" if environ.get(_HOME) else None
    if file is None or not file.is_file() or any(name in environ for name in _VARIABLES.values()):
        return dict(environ)
    account = _read(file)
    return {**environ, **{variable: str(account[key]) for key, variable in _VARIABLES.items() if account.get(key)}}


def _read(file: Path) -> dict[str, object]:
    import yaml

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        cause = " ".join(str(error).split())
        raise SettingsError(f"{file} cannot be read: {cause}") from error
    if content is not None and not isinstance(content, dict):
        raise SettingsError(f"{file} must have the lines accessKey: NAME and secretKey: SECRET")
    return content or {}
