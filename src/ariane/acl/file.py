"""The ACL file `plain_acl.yml`: validated when read, changed account by account, replaced atomically.

    globalWhiteRemoteAddresses: [10.10.103.*]
    accounts:
    - accessKey: RocketMQ
      secretKey: 12345678
      whiteRemoteAddress: 192.168.1.*
      admin: false
      defaultTopicPerm: DENY
      defaultGroupPerm: SUB
      topicPerms: [topicA=DENY, topicB=PUB|SUB]
      groupPerms: [groupA=SUB]
      brokers: [broker-a]             # that it may register at a nameserver; * for all. Not in Apache's files
    dataVersion:
    - {counter: 1, timestamp: 1700000000000}

A save rewrites the whole document, so comments are lost, as in Apache.
"""

import re
from pathlib import Path
from typing import Any, TypeAlias

from ariane.acl.rules import Rules, rules_of, version_of
from ariane.errors import SettingsError
from ariane.model.topic import DataVersion
from ariane.store.disk import Disk, read_all, replace_all
from ariane.wire.requests.acl import UpdateAccount

FILE_BYTES_MAX = 1024 * 1024  # some 5,000 accounts; parsing takes a second or so, in a thread

MASK = "********"
"""What a list of accounts shows for each secret. A tool that sends back what it was shown changes no secret."""

_COMMA = re.compile(r",(?![^{]*\})")

Document: TypeAlias = dict[str, Any]


def read_rules(disk: Disk, path: Path) -> tuple[Document, Rules]:
    """Reads and validates the file. SettingsError, with cause and hint, if it is missing, too large or invalid."""
    try:
        content = read_all(disk, path, FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"cannot read the access file {path}: {error.strerror}") from error
    if content is None:
        raise SettingsError(
            f"the access file {path} does not exist: create it with an admin account, or set aclEnable=false"
        )
    try:
        document = parse_document(content)
        return document, rules_of(document)
    except ValueError as error:
        raise SettingsError(f"the access file {path} is invalid: {error}") from error


def parse_document(content: bytes) -> Document:
    """ValueError if the content is not a YAML mapping."""
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"it is larger than {FILE_BYTES_MAX} bytes")
    from ariane.acl.yaml_loader import parse

    document = parse(content)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError("a mapping with 'accounts' is expected")  # noqa: TRY004
    return document


def save_document(disk: Disk, path: Path, document: Document) -> None:
    """Atomic and durable. On OSError nothing has changed."""
    from ariane.acl.yaml_loader import dump

    replace_all(disk, path, dump(document))


# --- changes: each returns a new document, with the next version ------------------------------------------------------


def with_account(document: Document, change: UpdateAccount, now_ms: int) -> Document:
    """The document with the fields of `change` applied to the account, which is created if it does not exist.

    ValueError for a new account whose secret is a mask.
    """
    accounts = _accounts(document)
    old = next((entry for entry in accounts if entry["accessKey"] == change.access_key), None)
    if old is None and _is_masked(change.secret_key):
        raise ValueError(
            f"account {change.access_key} is new, so there is no secret that {MASK} could stand for: name one"
        )
    entry = {**(old or {"accessKey": change.access_key}), **_changed_fields(change)}
    others = [entry if other is old else other for other in accounts]
    return _with_next_version({**document, "accounts": others if old is not None else [*others, entry]}, now_ms)


def without_account(document: Document, access_key: str, now_ms: int) -> Document:
    others = [entry for entry in _accounts(document) if entry["accessKey"] != access_key]
    return _with_next_version({**document, "accounts": others}, now_ms)


def with_white_list(document: Document, patterns: list[str], now_ms: int) -> Document:
    return _with_next_version({**document, "globalWhiteRemoteAddresses": patterns}, now_ms)


def _changed_fields(change: UpdateAccount) -> Document:
    """Requests always contain `admin`; other fields only if they change. Only the white address may be set to empty."""
    texts = {
        "secretKey": None if _is_masked(change.secret_key) else change.secret_key or None,
        "whiteRemoteAddress": change.white_remote_address,
        "defaultTopicPerm": change.default_topic_perm or None,
        "defaultGroupPerm": change.default_group_perm or None,
        "topicPerms": None if change.topic_perms is None else comma_list(change.topic_perms),
        "groupPerms": None if change.group_perms is None else comma_list(change.group_perms),
    }
    return {"admin": change.admin, **{name: value for name, value in texts.items() if value is not None}}


def _is_masked(secret: str | None) -> bool:
    """Asterisks of any number: tools shorten or lengthen the mask. A real secret of asterisks would be no secret."""
    return bool(secret) and not (secret or "").strip("*")


def comma_list(text: str) -> list[str]:
    """Splits at commas, except inside braces as in `10.1.2.{3,4}`."""
    return [part.strip() for part in _COMMA.split(text) if part.strip()]


def _accounts(document: Document) -> list[Document]:
    return list(document.get("accounts") or [])


def _with_next_version(document: Document, now_ms: int) -> Document:
    version = DataVersion(timestamp=now_ms, counter=version_of(document.get("dataVersion")).counter + 1)
    return {**document, "dataVersion": [{"counter": version.counter, "timestamp": version.timestamp}]}
