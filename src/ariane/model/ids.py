"""Numbers that must not be mixed up, and the rules for legal names."""

import re
from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""A byte position in the commit log of one broker."""

QueueOffset = NewType("QueueOffset", int)
"""The index of a message in its queue."""

TOPIC_LENGTH_MAX = 127  # the record stores the length in a signed byte
GROUP_LENGTH_MAX = 255

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"

# Apache's own pattern has a stray "|" in its character class. We leave it out: a name may become a directory
# (CVE-2019-17572), and no client creates such names.
_LEGAL_NAME = re.compile(r"[%a-zA-Z0-9_-]+")


def topic_name_problem(topic: str) -> str | None:
    """Why `topic` is not a legal topic name, or None when it is."""
    return _name_fault("topic", topic, TOPIC_LENGTH_MAX)


def group_name_problem(group: str) -> str | None:
    """Why `group` is not a legal group name, or None when it is."""
    return _name_fault("group", group, GROUP_LENGTH_MAX)


def _name_fault(kind: str, name: str, length_max: int) -> str | None:
    if not name:
        return f"the {kind} name is empty"
    if len(name) > length_max:
        return f"the {kind} name has {len(name)} characters, at most {length_max} are allowed"
    if not _LEGAL_NAME.fullmatch(name):
        return f"the {kind} name {name!r} may hold only letters, digits, '_', '-' and '%'"
    return None
