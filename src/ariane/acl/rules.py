"""Parsed ACL rules: accounts, permissions and white lists of a document in Apache's `plain_acl.yml` format.

Address patterns of white lists:

    (blank)                       no address
    *    *.*.*.*                  every address
    10.1.2.3    2001:db8::7       one address
    10.1.2.3,10.1.2.4             each of them
    10.1.2.{3,4}                  each of them
    10.1.2.*    2001:db8::1:*     all addresses with this prefix
    10.1.2-9.*  2001:db8::1-9:*   all addresses in the range

Only asterisks may follow a range or an asterisk. Apache ignores what follows, and so reads `10.1.*.7` as `10.1.*.*`: a
white list that is wider than it reads.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple, TypeAlias

from ariane.model.system_topics import is_closed_group, is_closed_topic
from ariane.model.topic import DataVersion
from ariane.settings import Secret

# --- address patterns ---

AddressMatch: TypeAlias = Callable[[str], bool]
Groups: TypeAlias = tuple[int, ...]
Ranges: TypeAlias = tuple[tuple[int, int], ...]

_ANY_ADDRESS = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_CACHED_HOSTS = 4096


def address_match(pattern: str | None) -> AddressMatch:
    """A predicate for remote addresses; ValueError, with cause and hint, for an invalid pattern."""
    text = (pattern or "").strip()
    if not text:
        return lambda _: False
    if text in _ANY_ADDRESS:
        return lambda _: True
    alternatives = [_ranges(part) for part in _alternatives(text)]

    def matches(host: str) -> bool:
        groups = _groups(host)
        return groups is not None and any(_in_ranges(groups, ranges) for ranges in alternatives)

    return matches


def host_of(peer: str) -> str:
    """`127.0.0.1:4711` and `[::1]:4711` without port and brackets."""
    host = peer.rpartition(":")[0] or peer
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _alternatives(text: str) -> Iterator[str]:
    head, brace, choices = text.partition("{")
    if brace:
        if not choices.endswith("}") or not head.endswith((".", ":")):
            raise _invalid_pattern(text)
        return (head + choice.strip() for choice in choices[:-1].split(","))
    return (part.strip() for part in text.split(","))


def _ranges(text: str) -> Ranges:
    try:
        return _ranges_v6(text) if ":" in text else _ranges_v4(text)
    except ValueError as error:
        raise _invalid_pattern(text) from error


def _ranges_v4(text: str) -> Ranges:
    parts = text.split(".")
    if len(parts) != 4:
        raise ValueError
    return _check_order([_range(part, 10, 255) for part in parts], parts)


def _ranges_v6(text: str) -> Ranges:
    """Parses the trailing pattern parts separately, because only a complete address may contain `::`."""
    parts = text.split(":")
    tail = 0
    while tail < len(parts) and ("*" in parts[-1 - tail] or "-" in parts[-1 - tail]):
        tail += 1
    head, patterns = parts[: len(parts) - tail], parts[len(parts) - tail :]
    groups = _groups(":".join(head + ["0"] * tail))
    if groups is None or len(groups) != 8:
        raise ValueError
    fixed = [(group, group) for group in groups[: 8 - tail]]
    return _check_order(fixed + [_range(part, 16, 0xFFFF) for part in patterns], ["-"] * len(fixed) + patterns)


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
    if not text.isascii() or not text.isalnum():  # int() accepts signs, blanks and underscores
        raise ValueError
    return int(text, base)


def _check_order(ranges: list[tuple[int, int]], parts: list[str]) -> Ranges:
    """ValueError unless only asterisks follow the first range or asterisk."""
    wide = [index for index, (low, high) in enumerate(ranges) if low != high]
    if wide and any(part != "*" for part in parts[wide[0] + 1 :]):
        raise ValueError
    return tuple(ranges)


@lru_cache(_CACHED_HOSTS)
def _groups(host: str) -> Groups | None:
    """4 or 8 numbers; None if it is not an address. An IPv4-mapped IPv6 address counts as IPv4."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return tuple(int(group, 16) for group in address.exploded.split(":"))
    return tuple((address.ipv4_mapped if isinstance(address, IPv6Address) else address).packed)  # type: ignore[union-attr]


def _in_ranges(groups: Groups, ranges: Ranges) -> bool:
    return len(groups) == len(ranges) and all(
        low <= group <= high for group, (low, high) in zip(groups, ranges, strict=True)
    )


def _invalid_pattern(text: str) -> ValueError:
    return ValueError(f"{text!r} is not an address pattern: 10.1.2.3, 10.1.2.*, 10.1.2-9.* or 10.1.2.{{3,4}} expected")


# --- accounts ---


class Permission(IntFlag):
    """Apache's names. ANY occurs only in requirements: either PUB or SUB is enough."""

    DENY = 1
    ANY = 2
    PUB = 4
    SUB = 8


class Requirement(NamedTuple):
    name: str
    is_group: bool
    permission: Permission

    @property
    def is_closed(self) -> bool:
        """Whether the default permission of an account does not apply: the broker's own topics and groups."""
        return is_closed_group(self.name) if self.is_group else is_closed_topic(self.name)

    def __str__(self) -> str:
        return f"{'group' if self.is_group else 'topic'}:{self.name}"


ANY_BROKER = "*"
KEY_LENGTH_MIN = 7  # for access keys and secrets, as in Apache ("longer than 6")

_DENY = int(Permission.DENY)
_PERMISSIONS = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}
_ACCOUNT_KEYS = frozenset(
    {
        *("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm"),
        *("topicPerms", "groupPerms", "brokers"),
    }
)
_WHITE_LIST = "globalWhiteRemoteAddresses"
_DOCUMENT_KEYS = frozenset({_WHITE_LIST, "accounts", "dataVersion"})
_BOOLEANS = {True: True, False: False, "true": True, "false": False, None: False}


@dataclass(frozen=True, slots=True)
class Account:
    access_key: str
    secret: Secret
    is_whitelisted: AddressMatch
    admin: bool
    default_topic: Permission
    default_group: Permission
    topics: Mapping[str, Permission]
    groups: Mapping[str, Permission]
    brokers: frozenset[str] = frozenset()
    """Names of brokers that it may register at a nameserver; `*` is every name."""

    def registers(self, broker_name: str) -> bool:
        """Whether it may register a broker of this name."""
        return self.admin or broker_name in self.brokers or ANY_BROKER in self.brokers

    def owns(self, broker_name: str) -> bool:
        """Whether it may replace a live broker of this name, for which `*` is not enough."""
        return self.admin or broker_name in self.brokers

    def allows(self, requirement: Requirement) -> bool:
        if self.admin and not self.topics and not self.groups:
            return True
        listed, default = (
            (self.groups, self.default_group) if requirement.is_group else (self.topics, self.default_topic)
        )
        owned = listed.get(requirement.name)
        if owned is None:
            owned = Permission.DENY if requirement.is_closed else default
        granted = owned._value_  # as numbers: the operators of a flag take three times as long
        if granted & _DENY:
            return False
        return (
            bool(granted)
            if requirement.permission is Permission.ANY
            else bool(granted & requirement.permission._value_)
        )


@dataclass(frozen=True, slots=True)
class Rules:
    accounts: Mapping[str, Account]
    white_list: tuple[AddressMatch, ...]
    version: DataVersion

    def is_whitelisted(self, host: str) -> bool:
        return any(matches(host) for matches in self.white_list)


def rules_of(document: object) -> Rules:
    """Parses a document. ValueError, with place, cause and hint, if it is invalid."""
    top = _mapping(document, "the file", _DOCUMENT_KEYS)
    accounts = [_account(entry, index) for index, entry in enumerate(_list(top.get("accounts"), "accounts"), 1)]
    white = _texts(top.get(_WHITE_LIST), _WHITE_LIST)
    matches = tuple(_address_pattern(pattern, _WHITE_LIST) for pattern in white)
    return Rules(_by_key(accounts), matches, version_of(top.get("dataVersion")))


def version_of(value: object) -> DataVersion:
    """Apache stores the version as a list with one element."""
    entries = _list(value, "dataVersion")
    entry = _mapping(entries[0], "dataVersion", None) if entries else {}
    try:
        return DataVersion(timestamp=int(entry.get("timestamp", 0)), counter=int(entry.get("counter", 0)))
    except (TypeError, ValueError):
        raise ValueError("dataVersion must contain two integers, timestamp and counter: correct or remove it") from None


def permission_of(word: object, where: str) -> Permission:
    permission = _PERMISSIONS.get(word.strip()) if isinstance(word, str) else None
    if permission is None:
        raise ValueError(f"{where}: {word!r} is not a permission: DENY, PUB, SUB or PUB|SUB expected")
    return permission


def _account(entry: object, number: int) -> Account:
    fields = _mapping(entry, f"account {number}", _ACCOUNT_KEYS)
    key = _key(fields, "accessKey", f"account {number}")
    where = f"account {key}"
    return Account(
        access_key=key,
        secret=Secret(_key(fields, "secretKey", where)),
        is_whitelisted=_address_pattern(fields.get("whiteRemoteAddress"), f"{where}: whiteRemoteAddress"),
        admin=_boolean(fields.get("admin"), f"{where}: admin"),
        default_topic=_default(fields.get("defaultTopicPerm"), f"{where}: defaultTopicPerm"),
        default_group=_default(fields.get("defaultGroupPerm"), f"{where}: defaultGroupPerm"),
        topics=_permissions(fields.get("topicPerms"), f"{where}: topicPerms"),
        groups=_permissions(fields.get("groupPerms"), f"{where}: groupPerms"),
        brokers=frozenset(_texts(fields.get("brokers"), f"{where}: brokers")),
    )


def _by_key(accounts: Iterable[Account]) -> dict[str, Account]:
    table: dict[str, Account] = {}
    for account in accounts:
        if account.access_key in table:
            raise ValueError(f"account {account.access_key} is defined twice: remove one")
        table[account.access_key] = account
    return table


def _key(fields: Mapping[str, Any], name: str, where: str) -> str:
    """Error texts never contain the value: it may be the secret."""
    value = fields.get(name)
    if not isinstance(value, str) or len(value) < KEY_LENGTH_MIN or not value.isprintable():
        raise ValueError(f"{where}: {name} must be a printable string longer than {KEY_LENGTH_MIN - 1} characters")
    return value


def _address_pattern(value: object, where: str) -> AddressMatch:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{where} must be a string")
    try:
        return address_match(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _default(value: object, where: str) -> Permission:
    return Permission.DENY if value is None or value == "" else permission_of(value, where)


def _permissions(value: object, where: str) -> dict[str, Permission]:
    table = {}
    for text in _texts(value, where):
        name, equals, word = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{where}: {text!r} is not NAME=PERMISSION, for example topicA=PUB|SUB")
        table[name.strip()] = permission_of(word, f"{where}: {text}")
    return table


# --- types of values --------------------------------------------------------------------------------------------------


def _mapping(value: object, where: str, known: frozenset[str] | None) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a mapping of names to values")  # noqa: TRY004
    unknown = [str(key) for key in value if known is not None and key not in known]
    if unknown and known is not None:
        raise ValueError(f"{where}: unknown name {unknown[0]!r}; known are {', '.join(sorted(known))}")
    return value


def _list(value: object, where: str) -> list[object]:
    if value is None or value == "":
        return []
    if not isinstance(value, list):
        raise ValueError(f"{where} must be a list")  # noqa: TRY004
    return value


def _texts(value: object, where: str) -> list[str]:
    entries = _list(value, where)
    texts = [entry for entry in entries if isinstance(entry, str)]
    if len(texts) != len(entries):
        raise ValueError(f"{where} must be a list of strings")
    return texts


def _boolean(value: object, where: str) -> bool:
    word = value.lower() if isinstance(value, str) else value
    if not isinstance(word, str | bool | None) or word not in _BOOLEANS:
        raise ValueError(f"{where} must be true or false")
    return _BOOLEANS[word]
