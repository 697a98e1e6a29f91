"""Checks of transactional messages: visible when committed, never when rolled back, asked about when left open."""

from interop.broker.stage import Stage
from interop.report import expect


async def commit(stage: Stage) -> None:
    await _run(stage, decision="commit", visible=True)


async def rollback(stage: Stage) -> None:
    await _run(stage, decision="rollback", visible=False)


async def check_commit(stage: Stage) -> None:
    await _run(stage, decision="unknown", check="commit", visible=True)


async def check_rollback(stage: Stage) -> None:
    await _run(stage, decision="unknown", check="rollback", visible=False)


async def _run(stage: Stage, *, decision: str, visible: bool, check: str | None = None) -> None:
    """Another transaction, opened later and left open, is the proof that the broker has been through the first.

    A decided transaction may be asked about all the same (5.x notes decisions in batches), so the producer's answers
    agree with its decisions.
    """
    topic = await stage.topic()
    tap = await stage.consume(topic)
    body, last = f"{stage.name} first", f"{stage.name} last"
    response = check or decision
    await stage.client.call("transaction", topic=topic, body=body, decision=decision, check=response, keys="k1")
    checks = stage.client.inbox("checks")
    if check is not None:
        await checks.wait_bodies({body})
    await stage.client.call("transaction", topic=topic, body=last, decision="unknown", check="commit")
    await tap.inbox.wait_bodies({last} | ({body} if visible else set()))
    await checks.wait_bodies({last})
    expect((body in tap.inbox.bodies) == visible, f"came: {tap.inbox.bodies}")
