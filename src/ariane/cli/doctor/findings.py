"""The result of a check of `ariane doctor`: a verdict, what was found, and a hint how to fix it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ariane.cli.common.output import Row
from ariane.errors import ArianeError


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Verdict
    found: str
    hint: str | None = None

    def row(self) -> Row:
        return {"check": self.check, "verdict": str(self.verdict), "found": self.found, "cure": self.hint}


Check = Callable[[], Iterable[Finding]]


def ok(check: str, found: str) -> Finding:
    return Finding(check, Verdict.OK, found)


def warning(check: str, found: str, hint: str) -> Finding:
    return Finding(check, Verdict.WARNING, found, hint)


def failure(check: str, found: str, hint: str) -> Finding:
    return Finding(check, Verdict.FAILURE, found, hint)


def not_asked(check: str, found: str, hint: str) -> Finding:
    """What could not be found out: neither good nor bad."""
    return Finding(check, Verdict.NOT_ASKED, found, hint)


def findings(name: str, check: Check) -> Iterator[Finding]:
    """The findings of a check. If the check itself fails, that is a finding too."""
    try:
        yield from check()
    except (ArianeError, OSError) as error:
        yield failure(name, f"the check failed: {error}", "fix this, then run `ariane doctor` again")
