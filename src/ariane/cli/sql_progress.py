"""How far the scans of a query are, for a person who waits at a terminal for more than two seconds."""

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ariane.sql.progress import Progress

_LATE_S = 2.0
_REFRESH_S = 0.2


class ScanBar:
    """Counts in a thread of its own, while the query's rows are waited for. Leave it before rows are printed."""

    def __init__(self, late_s: float = _LATE_S) -> None:
        self._late_s = late_s
        self._tables: list[Progress] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ariane-sql-progress", daemon=True)
        self.shown = threading.Event()

    def watch(self, progress: "Progress") -> None:
        self._tables.append(progress)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        if self._over.wait(self._late_s):
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
            task = bar.add_task("scanning", total=None)
            while not self._over.wait(_REFRESH_S):
                bar.update(task, completed=self.scanned, total=self.total)
                self.shown.set()

    @property
    def scanned(self) -> int:
        return sum(scan.scanned for table in self._tables for scan in table.scans)

    @property
    def total(self) -> int | None:
        """None while no scan has begun."""
        return sum((table.total - table.left_out) * len(table.scans) for table in self._tables) or None
