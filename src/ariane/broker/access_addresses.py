"""White lists: which remote addresses a pattern of `plain_acl.yml` names.

    (blank)                       nobody
    *    *.*.*.*                  everybody
    10.1.2.3    2001:db8::7       one address
    10.1.2.3,10.1.2.4             each of them
    10.1.2.{3,4}                  each of them
    10.1.2.*    2001:db8::1:*     all that begin so
    10.1.2-9.*  2001:db8::1-9:*   all in the range

A range or an asterisk may stand only where all that follows is an asterisk too. Apache ignores what follows, and so
takes `10.1.*.7` for `10.1.*.*`: a white list that is wider than it reads.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import TypeAlias

AddressMatch: TypeAlias = Callable[[str], bool]
Groups: TypeAlias = tuple[int, ...]
Ranges: TypeAlias = tuple[tuple[int, int], ...]

_EVERYBODY = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_CACHED_HOSTS = 4096


def address_match(pattern: str | None) -> AddressMatch:
    """What tells whether a remote address is meant; ValueError, naming cause and cure, for an unreadable pattern."""
    text = (pattern or "").strip()
    if not text:
        return lambda _: False
    if text in _EVERYBODY:
        return lambda _: True
    wanted = [_ranges(part) for part in _alternatives(text)]

    def matches(host: str) -> bool:
        groups = _groups(host)
        return groups is not None and any(_lies_in(groups, ranges) for ranges in wanted)

    return matches


def host_of(peer: str) -> str:
    """`127.0.0.1:4711` and `[::1]:4711` without port and brackets."""
    host = peer.rpartition(":")[0] or peer
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _alternatives(text: str) -> Iterator[str]:
    head, brace, choices = text.partition("{")
    if brace:
        if not choices.endswith("}") or not head.endswith((".", ":")):
            raise _unreadable(text)
        return (head + choice.strip() for choice in choices[:-1].split(","))
    return (part.strip() for part in text.split(","))


def _ranges(text: str) -> Ranges:
    try:
        return _ranges_v6(text) if ":" in text else _ranges_v4(text)
    except ValueError as error:
        raise _unreadable(text) from error


def _ranges_v4(text: str) -> Ranges:
    parts = text.split(".")
    if len(parts) != 4:
        raise ValueError
    return _checked([_range(part, 10, 255) for part in parts], parts)


def _ranges_v6(text: str) -> Ranges:
    """The part with patterns is cut off, for only a whole address may have a `::`."""
    parts = text.split(":")
    tail = 0
    while tail < len(parts) and ("*" in parts[-1 - tail] or "-" in parts[-1 - tail]):
        tail += 1
    head, patterns = parts[: len(parts) - tail], parts[len(parts) - tail :]
    groups = _groups(":".join(head + ["0"] * tail))
    if groups is None or len(groups) != 8:
        raise ValueError
    fixed = [(group, group) for group in groups[: 8 - tail]]
    return _checked(fixed + [_range(part, 16, 0xFFFF) for part in patterns], ["-"] * len(fixed) + patterns)


def _range(part: str, base: int, largest: int) -> tuple[int, int]:
    if part == "*":
        return 0, largest
    first, minus, last = part.partition("-")
    low = _number(first, base)
    high = _number(last, base) if minus else low
    if not low <= high <= largest:
        raise ValueError
    return low, high


def _number(text: str, base: int) -> int:
    if not text.isascii() or not text.isalnum():  # int() would take signs, blanks and underscores
        raise ValueError
    return int(text, base)


def _checked(ranges: list[tuple[int, int]], parts: list[str]) -> Ranges:
    """Behind the first pattern only asterisks."""
    wide = [index for index, (low, high) in enumerate(ranges) if low != high]
    if wide and any(part != "*" for part in parts[wide[0] + 1 :]):
        raise ValueError
    return tuple(ranges)


@lru_cache(_CACHED_HOSTS)
def _groups(host: str) -> Groups | None:
    """4 or 8 numbers; None for what is no address. An IPv4 address in IPv6 clothes is an IPv4 address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return tuple(int(group, 16) for group in address.exploded.split(":"))
    return tuple((address.ipv4_mapped if isinstance(address, IPv6Address) else address).packed)  # type: ignore[union-attr]


def _lies_in(groups: Groups, ranges: Ranges) -> bool:
    return len(groups) == len(ranges) and all(
        low <= group <= high for group, (low, high) in zip(groups, ranges, strict=True)
    )


def _unreadable(text: str) -> ValueError:
    return ValueError(f"{text!r} is not an address pattern: 10.1.2.3, 10.1.2.*, 10.1.2-9.* or 10.1.2.{{3,4}} expected")
