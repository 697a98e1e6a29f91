"""The result of each check, as a table in the terminal and in docs/compatibility.md."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "FAILED"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True, slots=True)
class Cell:
    verdict: Verdict
    reason: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Table:
    """Rows and columns in the order of their first cell."""

    title: str
    corner: str
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)

    def put(self, row: str, column: str, cell: Cell) -> None:
        self.cells[row, column] = cell
        print(f"  {cell.verdict:<11} {column}: {row} ({cell.seconds:.1f} s)", flush=True)

    @classmethod
    def joined(cls, tables: "Sequence[Table]") -> "Table":
        """One table of the columns of several."""
        whole = cls(tables[0].title, tables[0].corner)
        for table in tables:
            whole.cells |= table.cells
        return whole

    def failures(self) -> list[str]:
        return [
            f"{column}: {row}: {cell.reason}"
            for (row, column), cell in self.cells.items()
            if cell.verdict is Verdict.FAILED
        ]

    def markdown(self) -> str:
        rows, columns = _unique(row for row, _ in self.cells), _unique(column for _, column in self.cells)
        notes: list[str] = []
        lines = [
            f"## {self.title}",
            "",
            f"| {' | '.join([self.corner, *columns])} |",
            f"| --- |{' --- |' * len(columns)}",
        ]
        lines += [f"| {' | '.join([row, *(self._text(row, column, notes) for column in columns)])} |" for row in rows]
        notes_lines = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
        return "\n".join([*lines, *(["", *notes_lines] if notes else []), ""])

    def _text(self, row: str, column: str, notes: list[str]) -> str:
        cell = self.cells.get((row, column))
        if cell is None:
            return ""
        if cell.verdict is Verdict.PASSED:
            return "yes"
        note = cell.reason.split("\n", 1)[0]
        if note not in notes:
            notes.append(note)
        word = "no" if cell.verdict is Verdict.FAILED else "not offered"
        return f"{word} ({notes.index(note) + 1})"


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
