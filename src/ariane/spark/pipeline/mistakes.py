"""What is wrong in a pipeline's file. All mistakes are gathered, so that one look at the file mends them all."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

from ariane.errors import SettingsError


@dataclass(slots=True)
class Mistakes:
    file: str
    _found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, what: str) -> None:
        if (line, what) not in self._found:
            self._found.append((line, what))

    def __len__(self) -> int:
        return len(self._found)

    def raise_if_any(self) -> None:
        """SettingsError with a line for each mistake, in the order of the file."""
        lines = [f"{self.file}:{line}: {what}" for line, what in sorted(self._found)]
        if len(lines) == 1:
            raise SettingsError(lines[0])
        if lines:
            raise SettingsError("\n  ".join([f"{len(lines)} mistakes in the pipeline", *lines]))


def nearest(word: str, known: Iterable[str]) -> str:
    """The cure for an unknown word: the one that was meant, or all there are."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {names[close[0]]}?"
    return f"there are {', '.join(names.values())}" if names else "there is none"
