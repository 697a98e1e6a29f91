"""States of a member of a group; machine.py draws how they follow each other."""

from enum import Enum


class State(Enum):
    JOINING = "joining"
    FOLLOWING = "following"
    PROMOTING = "promoting"
    LEADING = "leading"
    DRAINING = "draining"
    FENCED = "fenced"
    REOPENING = "reopening"
    QUARANTINED = "quarantined"
    STOPPED = "stopped"
