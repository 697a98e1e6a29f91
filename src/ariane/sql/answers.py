"""What a query gave: rows as they come, and how they came about."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ariane.sql.progress import Progress


@dataclass(slots=True)
class Answer:
    columns: Sequence[str]
    rows: Iterator[dict[str, object]]
    """Read once. What was scanned is known when they are at their end."""
    scanned: list[Progress] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def sentences(self) -> list[str]:
        return [*self.notes, *(sentence for progress in self.scanned for sentence in progress.sentences())]

    @property
    def is_whole(self) -> bool:
        return all(progress.is_whole for progress in self.scanned)
