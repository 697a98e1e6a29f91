"""Types for the two kinds of offset, and validation of topic and group names."""

import re
from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""A byte position in the commit log of one broker."""

QueueOffset = NewType("QueueOffset", int)
"""The position of a message in its queue, counted in messages."""

TOPIC_LENGTH_MAX = 127  # the record stores the length in a signed byte
GROUP_LENGTH_MAX = 255

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"

# Apache's pattern has a stray "|" in its character class. It is left out here: a name may become a directory
# (CVE-2019-17572), and no client creates such names.
_VALID_NAME = re.compile(r"[%a-zA-Z0-9_-]+")


def topic_name_problem(topic: str) -> str | None:
    """Why `topic` is not a valid topic name, or None if it is valid."""
    return _name_problem("topic", topic, TOPIC_LENGTH_MAX)


def group_name_problem(group: str) -> str | None:
    """Why `group` is not a valid group name, or None if it is valid."""
    return _name_problem("group", group, GROUP_LENGTH_MAX)


def _name_problem(kind: str, name: str, length_max: int) -> str | None:
    if not name:
        return f"the {kind} name is empty"
    if len(name) > length_max:
        return f"the {kind} name has {len(name)} characters, at most {length_max} are allowed"
    if not _VALID_NAME.fullmatch(name):
        return f"the {kind} name {name!r} may hold only letters, digits, '_', '-' and '%'"
    return None
