"""Runs named checks one after the other and prints what passed."""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from interop.processes import InteropError


class CheckFailed(Exception):
    """A program ran, but what it said is not what it should say."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise CheckFailed(what)


def expect_in(wanted: str, output: str) -> None:
    expect(wanted in output, f"no {wanted!r} in:\n{output.strip()[-1500:]}")


@dataclass(slots=True)
class Report:
    rows: list[tuple[str, str, float]] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def check(self, name: str, body: Callable[[], None]) -> None:
        """Run one check; a failure is noted and the next one still runs."""
        started = time.monotonic()
        try:
            body()
            verdict = "pass"
        except (CheckFailed, InteropError) as problem:
            verdict = "FAIL"
            self.details.append(f"{name}: {problem}")
        except Exception:
            # A defect of the kit itself must not pass for a pass, nor hide the checks after it.
            verdict = "FAIL"
            self.details.append(f"{name}: {traceback.format_exc()}")
        self.rows.append((name, verdict, time.monotonic() - started))
        print(f"  {verdict}  {name}", flush=True)

    def skip(self, name: str, why: str) -> None:
        self.rows.append((f"{name}: {why}", "skip", 0.0))

    def finish(self) -> int:
        """Print the table; return the exit status."""
        width = max(len(name) for name, _, _ in self.rows)
        print()
        for name, verdict, seconds in self.rows:
            print(f"{name:<{width}}  {verdict}  {seconds:6.1f} s")
        failed = sum(verdict == "FAIL" for _, verdict, _ in self.rows)
        passed = sum(verdict == "pass" for _, verdict, _ in self.rows)
        for detail in self.details:
            print(f"\n{detail}")
        print(f"\n{passed} passed, {failed} failed, {len(self.rows) - passed - failed} skipped")
        return 1 if failed else 0
