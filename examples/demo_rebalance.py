"""Rebalance: when members join and leave a group, its queues are reassigned."""

import asyncio
import contextlib

from ariane import PushConsumer
from examples.demo_common import TIMEOUT_S, DemoCluster, MessageCollector, Result, bodies

QUEUES = 6


async def rebalance(cluster: DemoCluster) -> Result:
    """One member, then three, then two: after each change every queue has exactly one owner."""
    topic = await cluster.topic("rebalance", QUEUES)
    collector = MessageCollector()
    members = [_member(cluster, topic, collector) for _ in range(3)]
    shares = []
    async with members[0]:
        shares.append(await _even_shares(members[:1]))
        async with members[1]:
            async with members[2]:
                shares.append(await _even_shares(members))
                for body in bodies(12):
                    await cluster.producer.send(topic, body)
                await collector.wait_for(12)
                for member in members:  # without a commit, the next owner of a queue reads messages again
                    await member.commit()
            shares.append(await _even_shares(members[:2]))
    ok = shares == [[6], [2, 2, 2], [3, 3]] and set(collector.bodies) == set(bodies(12))
    text = ", then ".join(" + ".join(map(str, counts)) for counts in shares)
    return Result(12, collector.count, f"{QUEUES} queues shared as {text}", ok)


def _member(cluster: DemoCluster, topic: str, collector: MessageCollector) -> PushConsumer:
    member = PushConsumer(cluster.nameserver, group="rebalance-readers", start="earliest", handler=collector.collect)
    member.subscribe(topic)
    return member


async def _even_shares(members: list[PushConsumer]) -> list[int]:
    """How many queues each member has, as soon as all queues are shared evenly: a rebalance takes some steps."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            while not _is_even(members):  # noqa: ASYNC110  there is no event for the state of several clients
                await asyncio.sleep(0.05)
    return [len(_queues(member)) for member in members]


def _is_even(members: list[PushConsumer]) -> bool:
    shares = [_queues(member) for member in members]
    return len(set().union(*shares)) == QUEUES and {len(share) for share in shares} == {QUEUES // len(members)}


def _queues(member: PushConsumer) -> set[int]:
    return {queue.queue_id for queue in member.queues if queue.topic == "rebalance"}
