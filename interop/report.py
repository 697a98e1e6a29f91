"""Runs named checks one after the other and prints the results."""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from interop.processes import InteropError


class CheckFailed(Exception):
    """A program ran, but its output is not the expected one."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise CheckFailed(what)


def expect_in(expected: str, output: str) -> None:
    expect(expected in output, f"no {expected!r} in:\n{output.strip()[-1500:]}")


@dataclass(slots=True)
class Report:
    rows: list[tuple[str, str, float]] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def check(self, name: str, body: Callable[[], None]) -> None:
        """Run one check; a failure is recorded and the next check still runs."""
        started = time.monotonic()
        try:
            body()
            verdict = "pass"
        except (CheckFailed, InteropError) as problem:
            verdict = "FAIL"
            self.details.append(f"{name}: {problem}")
        except Exception:
            # A bug in the check itself counts as a failure, and the next checks still run.
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
