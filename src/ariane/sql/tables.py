"""What an engine needs of a table of messages, wherever it comes from."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from ariane.sql.progress import Progress, Scan


class MessageTable(Protocol):
    """Planned when it is made: every scan reads the same messages, however many come meanwhile."""

    progress: Progress

    def batches(self, columns: Sequence[str], scan: Scan) -> Iterator[pa.RecordBatch]:
        """The messages, with these columns in this order."""
        ...


class Catalog(Protocol):
    """The names that a query may use."""

    place: str
    """Where the topics are, for a sentence."""

    def topics(self) -> list[str]: ...

    def messages(self, topic: str) -> MessageTable: ...

    def facts(self, name: str) -> pa.Table | None:
        """What is known about topics, queues or groups; None when there is no such table."""
        ...

    def fact_names(self) -> tuple[str, ...]: ...
