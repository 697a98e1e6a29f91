"""Which requests an answer is for, found with as little work as the protocol allows."""

from collections.abc import Sequence
from typing import Protocol


class Answers(Protocol):
    """Reads the answers of one connection."""

    messages: int
    """Messages that answers carried."""
    refused: int
    refusal: str

    def sent(self, begin: int, end: int) -> None:
        """Those rows of the ring have gone out on this connection."""
        ...

    def feed(self, data: bytes) -> Sequence[int]:
        """The rows that these bytes answer; half an answer waits for its rest."""
        ...
