"""Checks of masters and slaves: who does not follow, who fell behind, who lacks older messages, who is set differently.

What a broker does not tell is reported as not asked, never as ok.
"""

from collections.abc import AsyncIterator, Iterator

from ariane.cli.doctor.findings import Finding, failure, not_asked, ok, warning
from ariane.client.admin import Admin
from ariane.client.admin.replicas import Replica, ReplicaSet

CHECK = "replication"
BEHIND_S = 10.0
"""A slave of Ariane is behind by milliseconds, one of Apache by up to a tenth of a second."""
_BEHIND_BYTES = 256 * 1024 * 1024
"""The default of haSlaveFallbehindMax."""
_FILE_BYTES = 1024 * 1024 * 1024
"""The default of mappedFileSizeCommitLog."""
_SAME_FILES = "mappedFileSizeCommitLog"
_SAME = ("fileReservedTime", "maxMessageSize", "messageDelayLevel")
_EXAMPLE = "see `ariane cluster replicas`"


async def check_replication(admin: Admin) -> AsyncIterator[Finding]:
    for each in await admin.cluster.replicas():
        for finding in findings_of(each):
            yield finding


def findings_of(each: ReplicaSet) -> Iterator[Finding]:
    """Nothing about a master that has no slaves and needs none."""
    master = each.master
    if each.has_no_slave_in_reach:
        hint = "start its slave, or make it an ASYNC_MASTER: until then each send ends with SLAVE_NOT_AVAILABLE"
        yield failure(CHECK, f"{each.name} is a SYNC_MASTER without a slave in reach", hint)
    for refused in each.refused:
        reason = refused.reason or "it closed the connection before it reported"
        hint = "if it is a slave, correct its settings; if not, keep strangers away from the replication port"
        yield warning(CHECK, f"the master of {each.name} refused {refused.addr}: {reason}", hint)
    for slave in each.slaves:
        yield from _connection(slave, master)
        yield from _distance(slave, master)
        if master is not None:
            yield from _older_messages(slave, master)
            yield from _differences(slave, master)
    for member in each.members if each.slaves else ():
        for what in member.unknown:
            yield not_asked(CHECK, f"{member}: {what}", _EXAMPLE)


def _connection(slave: Replica, master: Replica | None) -> Iterator[Finding]:
    if slave.is_connected:
        yield ok(CHECK, f"{slave} follows its master")
        if slave.metadata_failure is not None:
            hint = "topics, groups and offsets are those of the last copy: see the log of the slave"
            yield warning(CHECK, f"{slave} cannot copy its master's tables: {slave.metadata_failure}", hint)
    elif slave.is_connected is False:
        hint = "start the master" if master is None else "correct what the reason says; the slave tries again by itself"
        if not slave.is_registered:
            hint = "start it again, or restart the master if it is gone for good: then it is forgotten"
        yield failure(CHECK, f"{slave} does not follow its master: {slave.reason or 'nobody says why'}", hint)
    elif slave.failure is None:
        yield not_asked(CHECK, f"whether {slave} follows its master: neither of them tells", _EXAMPLE)


def _distance(slave: Replica, master: Replica | None) -> Iterator[Finding]:
    bytes_max = _number(master, "haSlaveFallbehindMax", _BEHIND_BYTES)
    known = [
        *(() if slave.behind_bytes is None else (f"{slave.behind_bytes:,} bytes",)),
        *(() if slave.behind_s is None else (f"{slave.behind_s:.1f} s",)),
    ]
    words = " and ".join(known)
    hint = "its disk or network may be too slow for what the master takes; see rocketmq_ha_slave_lag_bytes"
    if slave.behind_bytes is not None and slave.behind_bytes >= bytes_max:
        yield failure(CHECK, f"{slave} is {words} behind: a SYNC_MASTER would not wait for it", hint)
    elif slave.behind_s is not None and slave.behind_s >= BEHIND_S:
        yield warning(CHECK, f"{slave} is {words} behind", hint)
    elif slave.behind_bytes is None:
        yield not_asked(CHECK, f"how far {slave} is behind: master or slave does not tell", _EXAMPLE)
    elif slave.behind_s is None:
        yield not_asked(CHECK, f"for how long {slave} has been behind: it is {words} behind", _EXAMPLE)
    else:
        yield ok(CHECK, f"{slave} is {words} behind")


def _older_messages(slave: Replica, master: Replica) -> Iterator[Finding]:
    """Retention deletes at another time at each of them, so a file more or less says nothing."""
    if slave.begin is None or master.begin is None:
        if slave.is_registered and slave.failure is None and master.failure is None:
            yield not_asked(CHECK, f"whether {slave} has its master's older messages", _EXAMPLE)
    elif slave.begin - master.begin > _number(master, _SAME_FILES, _FILE_BYTES):
        hint = "a slave of the protocol of 4.x that began empty gets the last file only; retention may differ, too"
        lacks = f"{slave.begin - master.begin:,} bytes of older messages"
        yield warning(CHECK, f"{slave} lacks {lacks} that its master still has", hint)
    else:
        yield ok(CHECK, f"{slave} has its master's older messages")


def _differences(slave: Replica, master: Replica) -> Iterator[Finding]:
    if slave.version is not None and master.version is not None and slave.version != master.version:
        hint = "run the same version at both: a slave that becomes the master must understand what is stored"
        yield warning(CHECK, f"{slave} is {slave.version}, its master {master.version}", hint)
    if not slave.settings or not master.settings:
        return  # what was asked in vain is reported with the member
    differing = [name for name in (_SAME_FILES, *_SAME) if _differs(name, slave, master)]
    for name in differing:
        found = f"{slave} has {name}={slave.settings[name]}, its master {master.settings[name]}"
        if name == _SAME_FILES:
            yield failure(CHECK, found, "set it alike, and begin with an empty slave: the logs cannot be equal")
        else:
            yield warning(CHECK, found, "set it alike, or a slave that becomes the master behaves differently")
    if not differing:
        yield ok(CHECK, f"{slave} and its master have the same settings where it matters")


def _differs(name: str, slave: Replica, master: Replica) -> bool:
    """What one of them does not show is not compared."""
    ours, theirs = slave.settings.get(name), master.settings.get(name)
    return ours is not None and theirs is not None and ours != theirs


def _number(member: Replica | None, name: str, default: int) -> int:
    text = "" if member is None else member.settings.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else default
