"""A line about work that takes longer than two seconds, for a person who waits at a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_LATE_S = 2.0


@dataclass(slots=True)
class LateProgress:
    label: str
    total: int | None
    """None: nobody knows how many there will be."""
    is_wanted: bool
    done: int = 0
    _began: float = field(default_factory=time.monotonic)
    _bar: "tuple[Progress, TaskID] | None" = None

    def step(self) -> None:
        self.done += 1
        if self._bar is not None:
            self._bar[0].update(self._bar[1], completed=self.done)
        elif self.is_wanted and time.monotonic() - self._began > _LATE_S:
            self._bar = self._show()

    def _show(self) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        bar.start()
        return bar, bar.add_task(self.label, total=self.total, completed=self.done)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()


@contextmanager
def late_progress(label: str, total: int | None, *, rows_scroll_by: bool) -> Iterator[LateProgress]:
    """Not where rows are printed on the same terminal: the two would tear each other apart."""
    is_wanted = sys.stderr.isatty() and not (rows_scroll_by and sys.stdout.isatty())
    progress = LateProgress(label, total, is_wanted)
    try:
        yield progress
    finally:
        progress.stop()
