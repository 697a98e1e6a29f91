"""A sample of a producer's trace."""

from ariane.client.core.trace_format import Trace, TraceKind, published


def a_send_of_m1() -> Trace:
    return published(
        timestamp_ms=1_000_000,
        region="r",
        group="makers",
        topic="orders",
        message_id="M1",
        tags=None,
        keys=("o-1",),
        store_host="127.0.0.1:1",
        body_length=10,
        cost_ms=20,
        kind=TraceKind.NORMAL,
        offset_message_id="OFF",
        success=True,
    )
