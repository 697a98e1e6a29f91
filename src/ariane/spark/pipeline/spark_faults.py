"""What Spark says when something fails, as one of our errors: Spark wraps a task's Python error in pages of trace."""

import re

from ariane import errors
from ariane.errors import ArianeError

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
