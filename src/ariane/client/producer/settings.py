"""Producer settings. Each default is Apache's, or comes with its reason."""

from dataclasses import dataclass
from typing import TypedDict

from ariane.errors import SettingsError
from ariane.model.ids import group_name_problem
from ariane.model.topic import AUTO_CREATE_TEMPLATE

KiB = 1024
MiB = 1024 * KiB


class ProducerOptions(TypedDict, total=False):
    """The less common options of a producer, for its keyword arguments; described below."""

    retry_when_not_ok: bool
    message_bytes_max: int
    compress_over_bytes: int
    compress_level: int
    in_flight_max: int
    batch_bytes_max: int
    trace_topic: str
    template_topic: str
    template_queues: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    group: str
    send_timeout_s: float = 3.0
    """For one send with all its attempts."""
    retries: int = 2
    """Attempts after the first, on another broker where there is one."""
    retry_when_not_ok: bool = False
    """Whether a message that was stored less safely than required is sent again to another broker. May duplicate."""
    message_bytes_max: int = 4 * MiB
    compress_over_bytes: int = 4 * KiB
    compress_level: int = 5
    latency_fault: bool = False
    """Whether brokers that were slow or failed are avoided for a while (sendLatencyFaultEnable)."""
    in_flight_max: int = 10_000
    """How many messages of `send_nowait` may wait for their results."""
    batch_linger_ms: float = 0.0
    """Above 0: how long a message waits for others of its topic, to be sent with them in one batch."""
    batch_bytes_max: int = 1 * MiB
    """A batch is sent at the latest when it has this size. Below what brokers accept, for even latencies."""
    trace: bool = False
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    template_topic: str = AUTO_CREATE_TEMPLATE
    template_queues: int = 4
    """How many queues a topic gets that the first send creates, where brokers create topics automatically."""

    def __post_init__(self) -> None:
        fault = group_name_problem(self.group)
        if fault is not None:
            raise SettingsError(f"{fault}: choose another group")
        if self.send_timeout_s <= 0 or self.retries < 0 or self.in_flight_max < 1 or self.batch_linger_ms < 0:
            raise SettingsError(
                "send_timeout_s and in_flight_max must be above 0, retries and batch_linger_ms at least 0"
            )
