"""What was scanned for a query, and whether that is everything: told in sentences, so that nobody has to guess."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Scan:
    """One way through a table. A query that joins a topic with itself makes two."""

    scanned: int = 0
    is_done: bool = False


@dataclass(slots=True, kw_only=True)
class Progress:
    """Of all scans of one table."""

    name: str
    queues: int
    total: int
    """Messages of the table: those to be scanned, those that the limit leaves out, those that files rule out."""
    left_out: int = 0
    """Behind --limit-scan."""
    scans: list[Scan] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    """What could not be read, one sentence each; the first ones only."""
    trouble_count: int = 0

    def begin(self) -> Scan:
        self.scans.append(Scan())
        return self.scans[-1]

    def trouble(self, sentence: str) -> None:
        self.trouble_count += 1
        if len(self.troubles) < _TROUBLES_TOLD:
            self.troubles.append(sentence)

    @property
    def is_whole(self) -> bool:
        """Nothing that should have been read is missing. A limit that somebody asked for is no fault."""
        return not self.trouble_count

    def sentences(self) -> list[str]:
        if not self.scans:
            return []
        told = [f"incomplete: {sentence}" for sentence in self.troubles]
        if self.trouble_count > len(self.troubles):
            told.append(f"incomplete: {self.trouble_count - len(self.troubles):,} more such places in {self.name}")
        return [*told, self._scanned()]

    def _scanned(self) -> str:
        scanned = max(scan.scanned for scan in self.scans)
        again = f", each {len(self.scans)} times" if len(self.scans) > 1 else ""
        what = f"messages of {self.name} ({counted(self.queues, 'queue')}){again}"
        if not all(scan.is_done for scan in self.scans):
            return f"scanned {scanned:,} of {self.total:,} {what}: the query needed no more"
        if self.left_out:
            return f"scanned {scanned:,} of {self.total:,} {what}, stopped at --limit-scan: not complete"
        if not self.is_whole:
            return f"scanned {scanned:,} of {self.total:,} {what}, not complete"
        if scanned < self.total:
            return f"scanned {scanned:,} of {self.total:,} {what}, complete: the rest was ruled out unread"
        return f"scanned {scanned:,} {what}, complete"


_TROUBLES_TOLD = 5


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
