"""The bodies of some answers to pulls, where they were received: all in one piece of memory, with headers in between.

    | header | body | header | body | header | body ...         transport/receive_buffer.py

They are decoded there. To join them first would be a copy of everything that is read.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ariane.arrow.gather import ByteGatherer, Int64s
from ariane.transport.receive_buffer import Span


class PullBuffers(NamedTuple):
    memory: memoryview
    spans: list[Span]

    def pieces(self) -> tuple[ByteGatherer, Int64s, Int64s]:
        """The memory, and where in it each body begins and ends."""
        begins = np.array([span.begin for span in self.spans], np.int64)
        return ByteGatherer(self.memory), begins, np.array([span.end for span in self.spans], np.int64)

    def joined(self) -> bytes:
        return b"".join(span.view for span in self.spans)


def gathered(spans: Iterable[Span]) -> Iterator[PullBuffers]:
    """PullBuffers that lie in the same memory, which is as much as is worth a call of the decoder.

    They lie there in the order in which they came. One that came before its turn begins anew: the decoder goes up.
    """
    some: list[Span] = []
    for span in spans:
        if some and (span.memory is not some[-1].memory or span.begin < some[-1].end):
            yield PullBuffers(some[0].memory, some)
            some = []
        some.append(span)
    if some:
        yield PullBuffers(some[0].memory, some)
