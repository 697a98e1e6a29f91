"""A name that no topic has: told with the nearest one that there is."""

from collections.abc import Sequence
from difflib import get_close_matches

from ariane.errors import ClientError


class MissingTable(ClientError):
    """An engine does not find a table. It knows its own tables only, and not which topics there are."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no table {name}")
        self.name = name

    def explained(self, topics: Sequence[str], facts: Sequence[str], place: str) -> ClientError:
        known = [*topics, *facts]
        near = get_close_matches(self.name, known, n=1, cutoff=0.5) or _ignoring_case(self.name, known)
        if near:
            hint = f"did you mean {quoted(near[0])}?"
        elif topics:
            hint = f"topics there: {', '.join(topics[:_SHOWN])}{', ...' if len(topics) > _SHOWN else ''}"
        else:
            hint = "there is no topic at all"
        return ClientError(f"there is no topic {self.name} at {place}: {hint}")


_SHOWN = 10


def quoted(name: str) -> str:
    """As SQL wants it: plain names as they are, others in quotes."""
    is_plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _ignoring_case(name: str, known: Sequence[str]) -> list[str]:
    lower = {one.lower(): one for one in known}
    return [lower[near] for near in get_close_matches(name.lower(), lower, n=1, cutoff=0.5)]
