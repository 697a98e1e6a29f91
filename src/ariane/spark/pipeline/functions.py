"""Python steps: `module:function`, looked up before Spark starts, called with data frames."""

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
    """What is wrong with it, or None."""
    module, colon, name = step.function.partition(":")
    if not colon or not module or not name:
        return f"{step.function[:80]!r} is no function: module:function expected"
    try:
        function = find_function(step, directory)
    except Exception as error:  # the user's own module runs here, and may fail in any way
        return f"{step.function} cannot be had: {type(error).__name__}: {error}"
    if not callable(function):
        return f"{step.function} is no function"
    try:
        inspect.signature(function).bind(*step.inputs, **step.args)
    except (TypeError, ValueError) as error:
        return f"{step.function} does not take {len(step.inputs)} inputs and args {sorted(step.args)}: {error}"
    return None


def find_function(step: PythonStep, directory: Path) -> Callable[..., Any]:
    """From a module beside the pipeline's file, or any other that Python finds."""
    module, _, name = step.function.partition(":")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


# --- connection ---
#
# How the command reaches the cluster, as options of sources and sinks.

Connection = Mapping[str, str]
"""Options by which sources, sinks and jobs reach the cluster."""


def merged(connection: Connection, own: Mapping[str, str]) -> dict[str, str]:
    """What the file says wins, in whatever case it says it: for Spark nameserver and nameServer are one option."""
    said = {name.lower() for name in own}
    return {**{name: text for name, text in connection.items() if name.lower() not in said}, **own}


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


# --- spark_faults ---
#
# What Spark says when something fails, as one of our errors: Spark wraps a task's Python error in pages of trace.

_OURS = re.compile(r"ariane\.errors\.(\w+): ((?:.(?!\n))*.)")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_SPARKS = re.compile(r"^\[[A-Z_0-9.]+\] .*", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)", re.MULTILINE)


def our_error(error: BaseException, doing: str) -> ArianeError:
    """The same error when it is ours already; the error of a task when that was ours; else one sentence of Spark's."""
    if isinstance(error, ArianeError):
        return error
    text = str(error)
    for name, told in reversed(_OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, ArianeError):
            return _made(kind, f"{doing}: {told.strip()}")
    found = _RAISED.findall(text) or _SPARKS.findall(text) or _CAUSE.findall(text)
    told = found[0] if found else text.partition("\n")[0]
    return ArianeError(f"{doing}: {' '.join(told.split())[:600]}")


def _made(kind: type[ArianeError], told: str) -> ArianeError:
    """Some classes take more than a text; their exit code is what matters here."""
    if kind.__init__ is ArianeError.__init__:
        return kind(told)
    made = ArianeError(told)
    made.exit_status = kind.exit_status  # type: ignore[misc]
    return made
