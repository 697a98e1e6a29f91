"""Checks of transactional messages: visible after commit, invisible after rollback, checked back when undecided."""

from interop.broker.check_context import CheckContext
from interop.report import expect


async def commit(context: CheckContext) -> None:
    await _run(context, decision="commit", visible=True)


async def rollback(context: CheckContext) -> None:
    await _run(context, decision="rollback", visible=False)


async def check_commit(context: CheckContext) -> None:
    await _run(context, decision="unknown", check="commit", visible=True)


async def check_rollback(context: CheckContext) -> None:
    await _run(context, decision="unknown", check="rollback", visible=False)


async def _run(context: CheckContext, *, decision: str, visible: bool, check: str | None = None) -> None:
    """A second transaction, opened later and left undecided, proves that the broker has processed the first.

    The broker may check back a decided transaction too (5.x writes decisions in batches), so the producer's answers to
    checks equal its decisions.
    """
    topic = await context.topic()
    consumer = await context.consume(topic)
    body, last = f"{context.name} first", f"{context.name} last"
    response = check or decision
    await context.client.call("transaction", topic=topic, body=body, decision=decision, check=response, keys="k1")
    checks = context.client.inbox("checks")
    if check is not None:
        await checks.wait_bodies({body})
    await context.client.call("transaction", topic=topic, body=last, decision="unknown", check="commit")
    await consumer.inbox.wait_bodies({last} | ({body} if visible else set()))
    await checks.wait_bodies({last})
    expect((body in consumer.inbox.bodies) == visible, f"came: {consumer.inbox.bodies}")
