"""Checks of a cluster: who is registered, who answers, whose clocks agree, which topics have nobody to write to."""

import asyncio
import ipaddress
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import closing
from itertools import pairwise
from time import time

from ariane.broker.groups.configs import differing_topics, subscription_set_of
from ariane.cli.dlq import REDRIVE_GROUP, views_of_all
from ariane.cli.doctor.findings import Finding, failure, ok, warning
from ariane.client.admin import Admin
from ariane.client.admin.cluster import Runtime
from ariane.client.admin.groups import GroupSummary
from ariane.client.admin.requests import Broker
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError, ClientError, RequestFailed, TransportError
from ariane.model.address import Address
from ariane.model.route import MASTER_ID, ClusterMap
from ariane.spark.cluster import Calls
from ariane.wire.requests.topics import GetCluster

SKEW_S = 5.0
"""A broker tells its time in whole seconds, and the answer takes a while."""
_SAID_BY = {"flag": "-n"}
_RUNTIME = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")


def check_nameservers(settings: ClientSettings, origin: str) -> tuple[list[Finding], ClusterMap | None]:
    """Each of them: clients use any. The second is what one of them knows, None when none answers."""
    found: list[Finding] = []
    known: ClusterMap | None = None
    with closing(Calls(settings)) as calls:
        for address in settings.nameserver_list:
            try:
                known = calls.call(address, GetCluster(), settings.nameserver_timeout_s).body
                found.append(ok("nameserver", f"{address} answers"))
            except (TransportError, RequestFailed) as error:
                found.append(_unreached(address, str(error), origin))
    return found, known


def _unreached(address: str, error: str, origin: str) -> Finding:
    if origin == "default":  # nobody has said that there is one
        return warning(
            "nameserver", f"none answers at {address}", "start a broker with `ariane up`, or name one with -n"
        )
    cure = f"start it, or correct its address, which came from {_SAID_BY.get(origin, origin)}"
    return failure("nameserver", f"it does not answer: {error}", cure)


async def check_brokers(admin: Admin, known: ClusterMap, nameservers: str) -> AsyncIterator[Finding]:
    if not known.broker_addr_table:
        yield failure(
            "brokers", "no broker is registered", "start one, for example with `ariane broker`, or wait half a minute"
        )
        return
    asked = await admin.cluster.runtime()
    for failed in asked.failures:
        yield failure(
            "brokers",
            f"{failed.server} is registered and does not answer: {failed.error}",
            "start it, open its port, or set brokerIP1 to an address that clients reach",
        )
    for broker, runtime in asked.responses.items():
        yield _reached(broker, nameservers)
        yield _skew(broker, runtime)


def _reached(broker: Broker, nameservers: str) -> Finding:
    if _is_loopback(broker.address) and not all(map(_is_loopback, nameservers.split(";"))):
        return warning(
            "brokers",
            f"{broker} tells clients an address that only its own machine reaches",
            "set brokerIP1 to an address that clients reach",
        )
    return ok("brokers", f"{broker} answers at the address that clients are told")


def _is_loopback(address: str) -> bool:
    try:
        host = Address.parse(address.strip()).host
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _skew(broker: Broker, runtime: Runtime) -> Finding:
    told_s = broker_time_s(runtime)
    if told_s is None:
        return warning("clocks", f"{broker} does not tell its time", "compare its clock by hand")
    skew_s = told_s - time()
    if abs(skew_s) > SKEW_S:
        word = "ahead of" if skew_s > 0 else "behind"
        cure = "synchronise both clocks: delays, retention and searches by time follow the broker's"
        return warning("clocks", f"the clock of {broker} is {abs(skew_s):.0f} s {word} this machine's", cure)
    return ok("clocks", f"the clock of {broker} agrees with this machine's")


def broker_time_s(runtime: Runtime) -> float | None:
    """When it booted, and for how long it says that it runs, which it tells in whole seconds: half of one is added."""
    running = _RUNTIME.search(runtime.table.get("runtime", ""))
    if running is None or runtime.booted_ms is None:
        return None
    days, hours, minutes, seconds = map(int, running.groups())
    return runtime.booted_ms / 1000 + ((days * 24 + hours) * 60 + minutes) * 60 + seconds + 0.5


async def check_masters(admin: Admin, known: ClusterMap) -> AsyncIterator[Finding]:
    """A broker name without a master takes no message, and its topics lose the queues that they have there."""
    orphans = sorted(name for name, data in known.broker_addr_table.items() if MASTER_ID not in data.broker_addrs)
    for name in orphans:
        cure = "start its master: until then its slaves are read, and nothing can be sent to it"
        yield failure("masters", f"broker {name} has no master{await _topics_at(admin, name)}", cure)
    if not orphans:
        yield ok("masters", f"every broker name has a master ({len(known.broker_addr_table)})")


async def _topics_at(admin: Admin, broker_name: str) -> str:
    without = []
    for topic in await admin.topics.names():
        try:
            route = await admin.topics.route(topic)
        except ClientError:
            continue
        if {data.broker_name for data in route.broker_datas} == {broker_name}:
            without.append(topic)
    return f"; topics that are nowhere else: {', '.join(without[:5])}" if without else ""


async def check_disks(admin: Admin) -> AsyncIterator[Finding]:
    settings = (await admin.brokers.config()).responses
    for broker, runtime in (await admin.cluster.runtime()).responses.items():
        used = runtime.commit_log_disk_ratio
        if used is not None and used >= 0.85:
            cure = "free some, or keep messages for less time: soon it removes old ones early, then refuses new ones"
            yield warning("broker disks", f"{used:.0%} of the disk of {broker} is used", cure)
        elif is_too_small(runtime, settings.get(broker, {})):
            cure = (
                "free some, or set mappedFileSizeCommitLog lower: where the next file has no room, it refuses messages"
            )
            yield warning("broker disks", f"less is free on the disk of {broker} than one commit log file takes", cure)
        elif used is not None and used >= 0:
            yield ok("broker disks", f"{used:.0%} of the disk of {broker} is used")


def is_too_small(runtime: Runtime, settings: Mapping[str, str]) -> bool:
    """Log files take their whole space when they are made. What a broker does not tell is no reason to warn."""
    free, file_bytes = runtime.commit_log_free_bytes, settings.get("mappedFileSizeCommitLog", "")
    return free is not None and file_bytes.isdecimal() and free < int(file_bytes)


# --- doctor_groups ---
#
# Checks of consumer groups: who reads nothing, who falls behind, whose members disagree, whose messages are dead.


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
    wants = {client_id: subscription_set_of(info.subscription_set) for client_id, info in infos.responses.items()}
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
