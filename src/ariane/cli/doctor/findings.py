"""What a check of `ariane doctor` says: how it is, what was found, and what to do about it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ariane.cli.common.output import Row
from ariane.errors import ArianeError


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Verdict
    found: str
    cure: str | None = None

    def row(self) -> Row:
        return {"check": self.check, "verdict": str(self.verdict), "found": self.found, "cure": self.cure}


Check = Callable[[], Iterable[Finding]]


def ok(check: str, found: str) -> Finding:
    return Finding(check, Verdict.OK, found)


def warning(check: str, found: str, cure: str) -> Finding:
    return Finding(check, Verdict.WARNING, found, cure)


def failure(check: str, found: str, cure: str) -> Finding:
    return Finding(check, Verdict.FAILURE, found, cure)


def findings(name: str, check: Check) -> Iterator[Finding]:
    """What a check finds; that it could not be made is a finding too."""
    try:
        yield from check()
    except (ArianeError, OSError) as error:
        yield failure(name, f"this could not be checked: {error}", "mend that, then ask again")
