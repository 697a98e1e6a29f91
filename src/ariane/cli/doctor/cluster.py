"""Checks of a cluster: nameservers, brokers, clocks, masters, disks; lag, subscriptions and dead letters of groups."""

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
"""A broker reports its time in whole seconds, and the response takes some time."""
_ORIGINS = {"flag": "-n"}
_RUNTIME = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")


def check_nameservers(settings: ClientSettings, origin: str) -> tuple[list[Finding], ClusterMap | None]:
    """Checks all nameservers, because clients may use any. Also returns the cluster map; None if none responds."""
    findings: list[Finding] = []
    cluster_map: ClusterMap | None = None
    with closing(Calls(settings)) as calls:
        for address in settings.nameserver_list:
            try:
                cluster_map = calls.call(address, GetCluster(), settings.nameserver_timeout_s).body
                findings.append(ok("nameserver", f"{address} responds"))
            except (TransportError, RequestFailed) as error:
                findings.append(_unreached(address, str(error), origin))
    return findings, cluster_map


def _unreached(address: str, error: str, origin: str) -> Finding:
    if origin == "default":  # no nameserver was configured, so there may be none
        return warning(
            "nameserver", f"no nameserver responds at {address}", "start one with `ariane up`, or name one with -n"
        )
    hint = f"start it, or correct its address, which came from {_ORIGINS.get(origin, origin)}"
    return failure("nameserver", f"it does not respond: {error}", hint)


async def check_brokers(admin: Admin, cluster_map: ClusterMap, nameservers: str) -> AsyncIterator[Finding]:
    if not cluster_map.broker_addr_table:
        yield failure(
            "brokers", "no broker is registered", "start one, for example with `ariane broker`, or wait half a minute"
        )
        return
    runtimes = await admin.cluster.runtime()
    for failed in runtimes.failures:
        yield failure(
            "brokers",
            f"{failed.server} is registered but does not respond: {failed.error}",
            "start it, open its port, or set brokerIP1 to an address that clients can reach",
        )
    for broker, runtime in runtimes.responses.items():
        yield _reached(broker, nameservers)
        yield _skew(broker, runtime)


def _reached(broker: Broker, nameservers: str) -> Finding:
    if _is_loopback(broker.address) and not all(map(_is_loopback, nameservers.split(";"))):
        return warning(
            "brokers",
            f"{broker} advertises an address that only its own machine can reach",
            "set brokerIP1 to an address that clients can reach",
        )
    return ok("brokers", f"{broker} responds at its advertised address")


def _is_loopback(address: str) -> bool:
    try:
        host = Address.parse(address.strip()).host
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _skew(broker: Broker, runtime: Runtime) -> Finding:
    broker_s = broker_time_s(runtime)
    if broker_s is None:
        return warning("clocks", f"{broker} does not report its time", "compare its clock manually")
    skew_s = broker_s - time()
    if abs(skew_s) > SKEW_S:
        word = "ahead of" if skew_s > 0 else "behind"
        hint = "synchronise both clocks: delays, retention and searches by time use the broker's clock"
        return warning("clocks", f"the clock of {broker} is {abs(skew_s):.0f} s {word} this machine's", hint)
    return ok("clocks", f"the clock of {broker} agrees with this machine's")


def broker_time_s(runtime: Runtime) -> float | None:
    """Boot time plus uptime. The uptime is in whole seconds, so half a second is added."""
    running = _RUNTIME.search(runtime.table.get("runtime", ""))
    if running is None or runtime.booted_ms is None:
        return None
    days, hours, minutes, seconds = map(int, running.groups())
    return runtime.booted_ms / 1000 + ((days * 24 + hours) * 60 + minutes) * 60 + seconds + 0.5


async def check_masters(admin: Admin, cluster_map: ClusterMap) -> AsyncIterator[Finding]:
    """Without a master, a broker name accepts no messages, and topics cannot use their queues there."""
    brokers = cluster_map.broker_addr_table
    orphans = sorted(name for name, data in brokers.items() if MASTER_ID not in data.broker_addrs)
    for name in orphans:
        hint = "start its master: until then its slaves can be read, but nothing can be sent to it"
        yield failure("masters", f"broker {name} has no master{await _topics_only_at(admin, name)}", hint)
    if not orphans:
        yield ok("masters", f"every broker name has a master ({len(brokers)})")


async def _topics_only_at(admin: Admin, broker_name: str) -> str:
    topics = []
    for topic in await admin.topics.names():
        try:
            route = await admin.topics.route(topic)
        except ClientError:
            continue
        if {data.broker_name for data in route.broker_datas} == {broker_name}:
            topics.append(topic)
    return f"; topics on no other broker: {', '.join(topics[:5])}" if topics else ""


async def check_disks(admin: Admin) -> AsyncIterator[Finding]:
    settings = (await admin.brokers.config()).responses
    for broker, runtime in (await admin.cluster.runtime()).responses.items():
        used = runtime.commit_log_disk_ratio
        if used is not None and used >= 0.85:
            hint = "free space or shorten the retention: soon it deletes old messages early, then refuses new ones"
            yield warning("broker disks", f"{used:.0%} of the disk of {broker} is used", hint)
        elif is_too_small(runtime, settings.get(broker, {})):
            hint = "free space or lower mappedFileSizeCommitLog: without room for the next file it refuses messages"
            yield warning("broker disks", f"the disk of {broker} has no room for one more commit log file", hint)
        elif used is not None and used >= 0:
            yield ok("broker disks", f"{used:.0%} of the disk of {broker} is used")


def is_too_small(runtime: Runtime, settings: Mapping[str, str]) -> bool:
    """Commit log files are preallocated. No warning if the broker does not report its free space."""
    free, file_bytes = runtime.commit_log_free_bytes, settings.get("mappedFileSizeCommitLog", "")
    return free is not None and file_bytes.isdecimal() and free < int(file_bytes)


# --- consumer groups ---


async def check_lags(admin: Admin, watch_s: float) -> AsyncIterator[Finding]:
    """Reads the lags twice, to see which ones grow."""
    before = {group.members.group: group for group in await _consuming(admin)}
    await asyncio.sleep(watch_s if before else 0)
    after = await _consuming(admin)
    findings = [
        finding for group in after if (finding := _lag_finding(before.get(group.members.group), group, watch_s))
    ]
    for finding in findings:
        yield finding
    if not findings:
        yield ok("lag", f"no group falls behind ({len(after)} groups with an offset)")


async def _consuming(admin: Admin) -> list[GroupSummary]:
    groups = await admin.groups.summaries()
    return [group for group in groups if group.lag.queues and group.members.group != REDRIVE_GROUP]


def _lag_finding(before: GroupSummary | None, now: GroupSummary, watch_s: float) -> Finding | None:
    group, lag = now.members.group, now.lag.known_total
    grown = lag - before.lag.known_total if before is not None else 0
    if not now.members.is_online and now.members.is_complete and lag:
        growth = f" and {grown:,} more within {watch_s:g} s" if grown > 0 else ""
        hint = f"start its consumers, or delete it with `ariane group delete {group}` if it is no longer used"
        return warning("lag", f"group {group} has no member and {lag:,} messages to consume{growth}", hint)
    if grown > 0 and lag > 0:
        hint = f"add consumers or make them faster; see `ariane group lag {group}`"
        return warning("lag", f"group {group} is {lag:,} messages behind, {grown:,} more within {watch_s:g} s", hint)
    return None


async def check_subscriptions(admin: Admin) -> AsyncIterator[Finding]:
    """Asks each member: a broker keeps only one set of subscriptions for a group, that of the last heartbeat."""
    count = 0
    for summary in await admin.groups.summaries():
        members = summary.members
        if len(members.members) < 2:
            continue
        count += 1
        async for finding in _subscription_conflicts(admin, members.group):
            yield finding
    yield ok("subscriptions", f"compared the subscriptions of the members in {count} groups")


async def _subscription_conflicts(admin: Admin, group: str) -> AsyncIterator[Finding]:
    infos = await admin.clients.running_infos(group)
    wants = {client_id: subscription_set_of(info.subscription_set) for client_id, info in infos.responses.items()}
    members = sorted(wants)
    for member, other in pairwise(members):
        topics = differing_topics(wants[member], wants[other])
        if topics:
            yield failure(
                "subscriptions",
                f"members {member} and {other} of group {group} subscribe differently to {', '.join(topics)}",
                "use the same subscriptions in all members, or separate groups: otherwise messages get lost",
            )
            return


async def check_dead_letters(admin: Admin) -> AsyncIterator[Finding]:
    try:
        views = await views_of_all(admin, REDRIVE_GROUP)
    except ArianeError as error:
        yield warning("dead letters", f"cannot count them: {error}", "see `ariane dlq list`")
        return
    waiting = [(view.group, view.left(again=False)) for view in views if view.left(again=False)]
    for group, count in waiting:
        hint = f"inspect them with `ariane dlq show {group}`, then send them again with `ariane dlq redrive {group}`"
        yield warning("dead letters", f"group {group} has {count:,} messages that it failed to consume", hint)
    if not waiting:
        yield ok("dead letters", "none, or all sent again")


async def collect_findings(check: AsyncIterator[Finding], name: str) -> Iterable[Finding]:
    """All findings of a check. If the check itself fails, that is the last finding."""
    findings: list[Finding] = []
    try:
        async for finding in check:
            findings.append(finding)
    except ArianeError as error:
        findings.append(failure(name, f"the check failed: {error}", "fix this, then run `ariane doctor` again"))
    return findings
