"""Checks of consumer groups: who reads nothing, who falls behind, whose members disagree, whose messages are dead."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

from ariane.broker.subscription_check import differing_topics, wants_of
from ariane.cli.dead_letter_rows import views_of_all
from ariane.cli.dead_letters import REDRIVE_GROUP
from ariane.cli.doctor_findings import Finding, failure, ok, warning
from ariane.client.admin import Admin
from ariane.client.admin.groups import GroupSummary
from ariane.errors import ArianeError


async def check_lags(admin: Admin, watch_s: float) -> AsyncIterator[Finding]:
    """Looks twice, to see which lags grow."""
    before = {one.members.group: one for one in await _consuming(admin)}
    await asyncio.sleep(watch_s if before else 0)
    after = await _consuming(admin)
    found = [finding for one in after if (finding := _lag_finding(before.get(one.members.group), one, watch_s))]
    for finding in found:
        yield finding
    if not found:
        yield ok("lag", f"no group falls behind ({len(after)} groups with an offset)")


async def _consuming(admin: Admin) -> list[GroupSummary]:
    return [one for one in await admin.groups.summaries() if one.lag.queues and one.members.group != REDRIVE_GROUP]


def _lag_finding(before: GroupSummary | None, now: GroupSummary, watch_s: float) -> Finding | None:
    group, lag = now.members.group, now.lag.known_total
    grown = lag - before.lag.known_total if before is not None else 0
    if not now.members.is_online and now.members.is_complete and lag:
        how = f" and {grown:,} more within {watch_s:g} s" if grown > 0 else ""
        cure = f"start its consumers, or delete it with `ariane group delete {group}` if it is done"
        return warning("lag", f"group {group} has no member and {lag:,} messages to consume{how}", cure)
    if grown > 0 and lag > 0:
        cure = f"add consumers or make them faster; see `ariane group lag {group}`"
        return warning("lag", f"group {group} is {lag:,} messages behind, {grown:,} more within {watch_s:g} s", cure)
    return None


async def check_subscriptions(admin: Admin) -> AsyncIterator[Finding]:
    """Each member is asked itself: a broker keeps one subscription for a whole group, that of the last heartbeat."""
    count = 0
    for summary in await admin.groups.summaries():
        members = summary.members
        if len(members.members) < 2:
            continue
        count += 1
        async for finding in _disagreements(admin, members.group):
            yield finding
    yield ok("subscriptions", f"groups with several members that were asked what they subscribe to: {count}")


async def _disagreements(admin: Admin, group: str) -> AsyncIterator[Finding]:
    infos = await admin.clients.running_infos(group)
    wants = {client_id: wants_of(info.subscription_set) for client_id, info in infos.answers.items()}
    members = sorted(wants)
    for one, other in pairwise(members):
        topics = differing_topics(wants[one], wants[other])
        if topics:
            yield failure(
                "subscriptions",
                f"members {one} and {other} of group {group} subscribe differently to {', '.join(topics)}",
                "give all members of a group the same subscriptions, or each kind its own group: messages go missing",
            )
            return


async def check_dead_letters(admin: Admin) -> AsyncIterator[Finding]:
    try:
        views = await views_of_all(admin, REDRIVE_GROUP)
    except ArianeError as error:
        yield warning("dead letters", f"they could not be counted: {error}", "see `ariane dlq list`")
        return
    waiting = [(view.group, view.left(again=False)) for view in views if view.left(again=False)]
    for group, count in waiting:
        cure = f"look at them with `ariane dlq show {group}`, then `ariane dlq redrive {group}`"
        yield warning("dead letters", f"group {group} has {count:,} messages that it failed to consume", cure)
    if not waiting:
        yield ok("dead letters", "no group has any that was not sent again")


async def gathered(findings: AsyncIterator[Finding], name: str) -> Iterable[Finding]:
    """All of one check, with the trouble that ended it."""
    found: list[Finding] = []
    try:
        async for finding in findings:
            found.append(finding)
    except ArianeError as error:
        found.append(failure(name, f"this could not be checked: {error}", "mend that, then ask again"))
    return found
