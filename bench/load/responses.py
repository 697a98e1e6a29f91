"""The interface of response readers: which requests were answered, found as cheaply as the protocol allows."""

from collections.abc import Sequence
from typing import Protocol


class ResponseReader(Protocol):
    """Parses the responses of one connection."""

    messages: int
    """Messages in all responses so far."""
    refused: int
    first_error: str

    def sent(self, begin: int, end: int) -> None:
        """These rows of the ring were sent on this connection."""
        ...

    def feed(self, data: bytes) -> Sequence[int]:
        """The rows that these bytes answer; an incomplete response waits for the rest."""
        ...
