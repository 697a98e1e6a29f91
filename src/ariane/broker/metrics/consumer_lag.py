"""How far each group is behind in each of its topics, as RocketMQ 5.x counts it.

    queue    ├──── consumed ────┼──── in flight ────┼──── ready ────┤
             0              committed            pulled            end
                                └────────────── lag ───────────────┘

Unlike Apache, groups that are not connected are told too, by the offsets that they left: theirs is the lag that one
wants to be woken for. A queue without a committed offset counts as consumed, as at Apache's.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ariane.broker.consume_stats import ConsumeProgress
from ariane.broker.counters import Counters
from ariane.broker.metrics.store_times import Place, place_of
from ariane.model.topic import TopicConfig
from ariane.store.steps import Steps


@dataclass(slots=True)
class Lag:
    group: str
    topic: str
    messages: int = 0
    in_flight: int = 0
    ready: int = 0
    unconsumed: Place | None = None
    """The oldest message that is not consumed, and the oldest that was not pulled."""
    unpulled: Place | None = None


def lags_of(group: str, progress: ConsumeProgress, counters: Counters) -> Iterator[Steps[Lag]]:
    """Of one group, topic by topic: those in which it has offsets, but for those that its members gave up, and those
    that its members have just begun with."""
    configs = {config.topic_name: config for config in progress.topics_of(group)}
    online = progress.clients.group(group)
    for topic in () if online is None else tuple(online.subscriptions):
        config = progress.topics.get(topic)
        if config is not None:
            configs[topic] = config
    for config in configs.values():
        yield _lag(group, config, progress, counters)


def _lag(group: str, config: TopicConfig, progress: ConsumeProgress, counters: Counters) -> Steps[Lag]:
    topic = config.topic_name
    lag = Lag(group, topic)
    tally = counters.gets.get((topic, group))
    pulled = {} if tally is None else tally.pulled
    unconsumed: list[int] = []
    unpulled: list[int] = []
    for queue_id, queue in tuple(progress.store.parts.queues.of_topic(topic).items()):
        end = queue.max_offset
        committed = progress.offsets.get(group, topic, queue_id)
        consumed = end if committed < 0 else min(max(committed, queue.min_offset), end)
        taken = min(max(pulled.get(queue_id, consumed), queue.min_offset if committed < 0 else consumed), end)
        lag.messages += end - consumed
        lag.in_flight += max(0, taken - consumed)
        lag.ready += end - taken
        unconsumed += _where((yield from queue.finding_physical(consumed)))
        unpulled += _where((yield from queue.finding_physical(taken)))
    log = progress.store.parts.commit_log
    lag.unconsumed = place_of(log, min(unconsumed, default=None))
    lag.unpulled = place_of(log, min(unpulled, default=None))
    return lag


def _where(physical: int | None) -> list[int]:
    return [] if physical is None else [physical]
