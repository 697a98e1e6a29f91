"""The bodies of pull responses, in the buffer into which they were received, with headers in between.

    | header | body | header | body | header | body ...         transport/blocking.py

They are decoded there: to join them first would copy everything that is read.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ariane.arrow.gather import ByteGatherer, Int64s
from ariane.transport.blocking import Span


class PullBuffers(NamedTuple):
    memory: memoryview
    spans: list[Span]

    def pieces(self) -> tuple[ByteGatherer, Int64s, Int64s]:
        """The buffer, and where in it each body begins and ends."""
        begins = np.array([span.begin for span in self.spans], np.int64)
        return ByteGatherer(self.memory), begins, np.array([span.end for span in self.spans], np.int64)

    def joined(self) -> bytes:
        return b"".join(span.view for span in self.spans)


def grouped_by_buffer(spans: Iterable[Span]) -> Iterator[PullBuffers]:
    """Groups the bodies that are in the same buffer, which is enough data for a call of the decoder.

    The decoder needs ascending positions, so a body that was received before its turn starts a new group.
    """
    some: list[Span] = []
    for span in spans:
        if some and (span.memory is not some[-1].memory or span.begin < some[-1].end):
            yield PullBuffers(some[0].memory, some)
            some = []
        some.append(span)
    if some:
        yield PullBuffers(some[0].memory, some)
