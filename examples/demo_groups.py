"""A group whose members come and go: its queues are shared anew each time."""

import asyncio
import contextlib

from ariane.client.consumer.push import PushConsumer
from examples.demo_stage import PATIENCE_S, Inbox, Row, Stage, bodies

QUEUES = 6


async def rebalance(stage: Stage) -> Row:
    """One member, then three, then two: after each change every queue has exactly one owner."""
    topic = await stage.topic("rebalance", QUEUES)
    inbox = Inbox()
    members = [_member(stage, topic, inbox) for _ in range(3)]
    seen = []
    async with members[0]:
        seen.append(await _shared(members[:1]))
        async with members[1]:
            async with members[2]:
                seen.append(await _shared(members))
                for body in bodies(12):
                    await stage.producer.send(topic, body)
                await inbox.wait_for(12)
                for member in members:  # a queue that moves before its offset is stored is read twice
                    await member.commit()
            seen.append(await _shared(members[:2]))
    ok = seen == [[6], [2, 2, 2], [3, 3]] and set(inbox.bodies) == set(bodies(12))
    shown = ", then ".join(" + ".join(map(str, counts)) for counts in seen)
    return Row(12, inbox.count, f"{QUEUES} queues shared as {shown}", ok)


def _member(stage: Stage, topic: str, inbox: Inbox) -> PushConsumer:
    member = PushConsumer(stage.nameserver, group="rebalance-readers", start="earliest", handler=inbox.take)
    member.subscribe(topic)
    return member


async def _shared(members: list[PushConsumer]) -> list[int]:
    """How many queues each has, as soon as they share them all evenly: members learn of each other one by one."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while not _is_even(members):  # noqa: ASYNC110  there is no event for the state of several clients
                await asyncio.sleep(0.05)
    return [len(_queues(member)) for member in members]


def _is_even(members: list[PushConsumer]) -> bool:
    shares = [_queues(member) for member in members]
    return len(set().union(*shares)) == QUEUES and {len(share) for share in shares} == {QUEUES // len(members)}


def _queues(member: PushConsumer) -> set[int]:
    return {queue.queue_id for queue in member.queues if queue.topic == "rebalance"}
