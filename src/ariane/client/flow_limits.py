"""How much a consumer takes in hand before it stops pulling."""

from dataclasses import dataclass

from ariane.client.process_queue import ProcessQueue

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Per queue, with Apache's defaults."""

    count: int = 1000
    bytes: int = 100 * MiB
    span: int = 2000
    """Distance between the first and the last offset in hand. Beyond it a stuck message would make a crash repeat
    thousands of finished ones. Ordered consumption finishes in order, so it does not look at this."""

    def exceeded_by(self, held: ProcessQueue, *, ordered: bool = False) -> str | None:
        """Which limit `held` is over, or None: then pull."""
        if len(held) > self.count:
            return "count"
        if held.bytes > self.bytes:
            return "bytes"
        return "span" if held.span > self.span and not ordered else None

    def exceeded_with(
        self, held: ProcessQueue, count: int, size: int, next_offset: int, *, ordered: bool = False
    ) -> bool:
        """Whether `held` is over a limit once it has an answer, not read yet, of up to `count` messages in `size` bytes
        before `next_offset`. (Compressed bodies may turn out larger, by one answer at most.)"""
        if len(held) + count > self.count or held.bytes + size > self.bytes:
            return True
        return next_offset - 1 - held.commit_offset > self.span and not ordered
