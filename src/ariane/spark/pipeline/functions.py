"""Python steps, connection options, and the conversion of Spark errors. Imports no Spark.

A Python step is `module:function`. It is looked up before Spark starts, and called with data frames.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ariane import errors
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError
from ariane.spark.pipeline.model import PythonStep


def check_function(step: PythonStep, directory: Path) -> str | None:
    """The problem with a function, or None."""
    module, colon, name = step.function.partition(":")
    if not colon or not module or not name:
        return f"{step.function[:80]!r} is not a function name: module:function expected"
    try:
        function = find_function(step, directory)
    except Exception as error:  # the user's own module runs here, and may fail in any way
        return f"{step.function} cannot be imported: {type(error).__name__}: {error}"
    if not callable(function):
        return f"{step.function} is not a function"
    try:
        inspect.signature(function).bind(*step.inputs, **step.args)
    except (TypeError, ValueError) as error:
        return f"{step.function} does not take {len(step.inputs)} inputs and args {sorted(step.args)}: {error}"
    return None


def find_function(step: PythonStep, directory: Path) -> Callable[..., Any]:
    """From a module in the directory of the pipeline's file, or any other that Python finds."""
    module, _, name = step.function.partition(":")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    return function  # type: ignore[no-any-return]


# --- connection options ---

Connection = Mapping[str, str]
"""The options with which sources, sinks and jobs connect to the cluster."""


def merged(connection: Connection, own: Mapping[str, str]) -> dict[str, str]:
    """Options of the file override others, ignoring case: for Spark nameserver and nameServer are one option."""
    overridden = {name.lower() for name in own}
    return {**{name: text for name, text in connection.items() if name.lower() not in overridden}, **own}


def connection_options(settings: ClientSettings) -> dict[str, str]:
    tls = settings.tls
    options: dict[str, object] = {
        "nameServer": settings.nameservers,
        "accessKey": settings.access_key,
        "secretKey": settings.secret_key,
        "securityToken": settings.security_token,
    }
    if tls.enable:
        options |= {
            "useTLS": "true",
            "tls.client.trustCertPath": tls.trust,
            "tls.client.certPath": tls.certificate,
            "tls.client.keyPath": tls.key,
            "tls.client.authServer": "true" if tls.verify else "false",
        }
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: object) -> str:
    reveal = getattr(value, "reveal", None)
    return str(reveal() if callable(reveal) else value)


# --- errors of Spark as errors of Ariane: Spark wraps the Python error of a task in pages of trace ---

_ARIANE_ERROR = re.compile(r"ariane\.errors\.(\w+): ((?:.(?!\n))*.)")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_SPARK_ERROR = re.compile(r"^\[[A-Z_0-9.]+\] .*", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)", re.MULTILINE)


def to_ariane_error(error: BaseException, doing: str) -> ArianeError:
    """An ArianeError as it is; the ArianeError of a task; otherwise the first sentence of Spark's error."""
    if isinstance(error, ArianeError):
        return error
    text = str(error)
    for name, message in reversed(_ARIANE_ERROR.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, ArianeError):
            return _make_error(kind, f"{doing}: {message.strip()}")
    matches = _RAISED.findall(text) or _SPARK_ERROR.findall(text) or _CAUSE.findall(text)
    message = matches[0] if matches else text.partition("\n")[0]
    return ArianeError(f"{doing}: {' '.join(message.split())[:600]}")


def _make_error(kind: type[ArianeError], message: str) -> ArianeError:
    """Some classes take more than a text; only their exit status matters here."""
    if kind.__init__ is ArianeError.__init__:
        return kind(message)
    error = ArianeError(message)
    error.exit_status = kind.exit_status  # type: ignore[misc]
    return error
