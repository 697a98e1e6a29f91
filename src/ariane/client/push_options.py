"""How a push consumer consumes. Defaults are Apache's unless a comment says otherwise."""

from dataclasses import dataclass, field
from pathlib import Path

from ariane.client.allocation import AVERAGELY, Allocation
from ariane.client.flow_limits import FlowLimits
from ariane.client.received import BODY_BYTES_MAX
from ariane.client.start_offset import Start
from ariane.errors import ClientError
from ariane.model.group import MessageModel

_ATTEMPTS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    start: Start
    model: MessageModel = MessageModel.CLUSTERING
    ordered: bool = False
    allocation: Allocation = AVERAGELY
    concurrency: int = 20
    batch: int = 1
    """Messages that a handler is given at a time."""
    pull_batch: int = 32
    max_reconsume: int | None = None
    consume_timeout_s: float = 15 * 60.0
    suspend_s: float = 1.0
    """Ordered mode: how long a queue rests after a failure."""
    close_timeout_s: float = 30.0
    limits: FlowLimits = field(default_factory=FlowLimits)
    body_bytes_max: int = BODY_BYTES_MAX
    offsets_root: Path | None = None
    """Broadcasting: the directory of offset files; the user's ~/.rocketmq_offsets when not set."""
    trace: bool = False

    def __post_init__(self) -> None:
        for name in ("concurrency", "batch", "pull_batch"):
            if getattr(self, name) < 1:
                raise ClientError(f"{name}={getattr(self, name)}: at least 1 is needed")

    @property
    def is_broadcast(self) -> bool:
        return self.model is MessageModel.BROADCASTING

    @property
    def attempts_max(self) -> int:
        return _ATTEMPTS_MAX if self.max_reconsume is None else self.max_reconsume
