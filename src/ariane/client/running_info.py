"""What a consumer tells of itself when an administrator asks, in the words of Apache's tools."""

from collections.abc import Iterable, Mapping

from ariane.client.handler_calls import TopicCounts
from ariane.client.held_queue import HeldQueue
from ariane.client.offsets import OffsetTable
from ariane.wire.codes import Version
from ariane.wire.requests.connections import ConsumeStatus, ProcessQueueInfo

_MiB = 1024 * 1024


def properties_of(
    nameservers: str, consume_type: str, began_ms: int, *, ordered: bool, threads: int, others: Mapping[str, str]
) -> dict[str, str]:
    return {
        "PROP_NAMESERVER_ADDR": nameservers,
        "PROP_CONSUME_TYPE": consume_type,
        "PROP_CONSUMEORDERLY": "true" if ordered else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(threads),
        "PROP_CLIENT_VERSION": Version.V4_7_1.name,
        "PROP_CONSUMER_START_TIMESTAMP": str(began_ms),
        **others,
    }


def queue_info(held: HeldQueue, offsets: OffsetTable, now_s: float) -> ProcessQueueInfo:
    process = held.process
    return ProcessQueueInfo(
        commit_offset=offsets.get(held.queue) or 0,
        cached_msg_min_offset=process.commit_offset if len(process) else 0,
        cached_msg_max_offset=process.last_offset if len(process) else 0,
        cached_msg_count=len(process),
        cached_msg_size_mib=process.bytes // _MiB,
        locked=held.locked_until > now_s,
        last_lock_timestamp=held.last_lock_ms,
        dropped=process.dropped,
        last_pull_timestamp=held.last_pull_ms,
        last_consume_timestamp=held.last_consume_ms,
    )


def status_table(
    topics: Iterable[str], counts: Mapping[str, TopicCounts], running_s: float
) -> dict[str, ConsumeStatus]:
    """Averages since the consumer started; the times of pulls are not kept."""
    return {topic: _status(counts.get(topic, TopicCounts()), max(running_s, 1.0)) for topic in topics}


def _status(counts: TopicCounts, running_s: float) -> ConsumeStatus:
    handled = counts.consumed + counts.failed
    return ConsumeStatus(
        consume_rt=counts.busy_s * 1000 / handled if handled else 0.0,
        consume_ok_tps=counts.consumed / running_s,
        consume_failed_tps=counts.failed / running_s,
        consume_failed_msgs=counts.failed,
    )
