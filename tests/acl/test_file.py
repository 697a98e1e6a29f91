"""The ACL file: parsing, validation, changes and saving."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.acl.file import (
    FILE_BYTES_MAX,
    comma_list,
    parse_document,
    read_rules,
    save_document,
    with_account,
    with_white_list,
    without_account,
)
from ariane.acl.rules import Permission, Requirement, Rules, rules_of
from ariane.errors import SettingsError
from ariane.model.topic import DataVersion
from ariane.wire.requests.acl import UpdateAccount
from tests.simulation.simulated_disk import SimulatedDisk

# The file of Apache's own distribution, word for word but for the licence.
APACHES = b"""
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""
PUB, SUB, ANY = Permission.PUB, Permission.SUB, Permission.ANY


def rules(content: bytes) -> Rules:
    return rules_of(parse_document(content))


def account(**fields: object) -> dict[str, object]:
    return {"accounts": [{"accessKey": "rocketmq", "secretKey": "12345678", **fields}]}


def test_apaches_own_file_is_read() -> None:
    read = rules(APACHES)
    assert read.is_whitelisted("10.10.103.7")
    assert not read.is_whitelisted("10.10.104.7")
    plain, admin = read.accounts["RocketMQ"], read.accounts["rocketmq2"]
    assert plain.secret.reveal() == "12345678"
    assert (plain.admin, admin.admin) == (False, True)
    assert admin.is_whitelisted("192.168.1.9")
    assert not plain.is_whitelisted("192.168.1.9")
    assert plain.topics == {"topicA": Permission.DENY, "topicB": PUB | SUB, "topicC": SUB}
    assert plain.groups == {"groupA": Permission.DENY, "groupB": PUB | SUB, "groupC": SUB}


@pytest.mark.parametrize(
    ("requirement", "allowed"),
    [
        (Requirement("topicA", False, PUB), False),
        (Requirement("topicA", False, ANY), False),
        (Requirement("topicB", False, PUB), True),
        (Requirement("topicB", False, SUB), True),
        (Requirement("topicB", False, ANY), True),
        (Requirement("topicC", False, PUB), False),
        (Requirement("topicC", False, SUB), True),
        (Requirement("topicC", False, ANY), True),
        (Requirement("other", False, PUB), False),
        (Requirement("groupA", True, SUB), False),
        (Requirement("groupC", True, SUB), True),
        (Requirement("other", True, SUB), True),
        (Requirement("topicB", True, SUB), True),  # a group of that name has nothing to do with the topic
    ],
)
def test_permissions_of_an_account(requirement: Requirement, allowed: bool) -> None:
    assert rules(APACHES).accounts["RocketMQ"].allows(requirement) is allowed


def test_an_administrator_without_own_permissions_may_do_everything() -> None:
    assert rules(APACHES).accounts["rocketmq2"].allows(Requirement("any", False, PUB))
    listed = rules_of(account(admin=True, topicPerms=["topicA=SUB"])).accounts["rocketmq"]
    assert listed.allows(Requirement("topicA", False, SUB))
    assert not listed.allows(Requirement("other", False, SUB))


def test_nothing_is_allowed_by_default() -> None:
    silent = rules_of(account()).accounts["rocketmq"]
    assert not silent.allows(Requirement("topic", False, SUB))
    assert not silent.allows(Requirement("group", True, SUB))


def test_secrets_are_text_as_written_and_never_shown() -> None:
    read = rules(b"accounts:\n- {accessKey: 0012345678, secretKey: 2024-01-01}\n")
    assert read.accounts["0012345678"].secret.reveal() == "2024-01-01"
    assert "2024" not in repr(read)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"accounts: [", "it is not YAML: .* at line 2, column 1"),
        (b"- just a list", "a mapping with 'accounts' is expected"),
        (b"accounts: 5", "accounts must be a list"),
        (b"accounts: [5]", "account 1 must be a mapping"),
        (b"accounts: [{secretKey: 12345678}]", "account 1: accessKey must be a printable string longer than 6"),
        (b"accounts: [{accessKey: rocketmq}]", "account rocketmq: secretKey must be a printable string longer than 6"),
        (b"accounts: [{accessKey: rocket, secretKey: 12345678}]", "accessKey must be a printable string longer than 6"),
        (b'accounts: [{accessKey: "rocket\\nmq", secretKey: 12345678}]', "accessKey must be a printable string"),
        (b"accounts: [{accessKey: rocketmq, secretKey: [1]}]", "secretKey must be a printable string"),
        (b"accounts: [{accessKey: rocketmq, secretKey: 12345678, addmin: true}]", "unknown name 'addmin'"),
        (b"accounts: [{accessKey: rocketmq, secretKey: 12345678, admin: maybe}]", "admin must be true or false"),
        (b"accounts: [{accessKey: rocketmq, secretKey: 12345678, admin: [1]}]", "admin must be true or false"),
        (b"accounts: [{accessKey: rocketmq, secretKey: 12345678, defaultTopicPerm: ALL}]", "'ALL' is not a permission"),
        (b"accounts: [{accessKey: rocketmq, secretKey: 12345678, topicPerms: [a=RW]}]", "'RW' is not a permission"),
        (b"accounts: [{accessKey: rocketmq, secretKey: 12345678, topicPerms: [a]}]", "not NAME=PERMISSION"),
        (b"accounts: [{accessKey: rocketmq, secretKey: 12345678, groupPerms: [=SUB]}]", "not NAME=PERMISSION"),
        (
            b"accounts: [{accessKey: rocketmq, secretKey: 12345678, groupPerms: [{a: SUB}]}]",
            "must be a list of strings",
        ),
        (b"accounts: [{accessKey: rocketmq, secretKey: 12345678, whiteRemoteAddress: 1.2}]", "not an address pattern"),
        (b"accounts: [{accessKey: rocketmq, secretKey: 12345678, whiteRemoteAddress: [1.2]}]", "must be a string"),
        (b"accounts: [&a {accessKey: rocketmq, secretKey: 12345678}, *a]", "is defined twice"),
        (b"globalWhiteRemoteAddresses: [10.1]", "globalWhiteRemoteAddresses: '10.1' is not an address pattern"),
        (b"dataVersion: [{counter: x}]", "dataVersion must contain two integers"),
        (b"user: x", "unknown name 'user'"),
        (b"accounts: !!python/object/apply:os.system [ls]", "not YAML"),
        (b"\xff\xfe\xff", "not YAML"),
        (b"[" * 5000, "not YAML"),
        (b"#" * (FILE_BYTES_MAX + 1), "larger than 1048576 bytes"),
    ],
)
def test_an_invalid_file_is_rejected_with_its_cause(content: bytes, cause: str) -> None:
    with pytest.raises(ValueError, match=cause) as caught:
        rules(content)
    assert "12345678" not in str(caught.value)


def test_an_empty_file_allows_no_access() -> None:
    read = rules(b"")
    assert (dict(read.accounts), read.white_list) == ({}, ())


@given(st.binary(max_size=80) | st.text("accounts:-[]{}&*!' \n", max_size=60).map(str.encode))
def test_any_bytes_are_parsed_or_rejected(content: bytes) -> None:
    try:
        rules(content)
    except ValueError as error:
        assert str(error)  # noqa: PT017


# --- changes ----------------------------------------------------------------------------------------------------------


def test_a_new_account_is_added_with_the_next_version() -> None:
    old = parse_document(APACHES)
    new = with_account(
        old, UpdateAccount(access_key="new-account", secret_key="abcdefgh", topic_perms="a=PUB,b=SUB"), 99
    )
    read = rules_of(new)
    assert list(read.accounts) == ["RocketMQ", "rocketmq2", "new-account"]
    assert read.accounts["new-account"].topics == {"a": PUB, "b": SUB}
    assert read.version == DataVersion(timestamp=99, counter=1)
    assert rules_of(with_account(new, UpdateAccount(access_key="new-account"), 100)).version.counter == 2
    assert rules_of(old).version == DataVersion()  # the old document is as it was


def test_an_update_changes_what_it_names() -> None:
    change = UpdateAccount(access_key="RocketMQ", default_topic_perm="PUB", white_remote_address="10.1.2.*")
    changed = rules_of(with_account(parse_document(APACHES), change, 1)).accounts["RocketMQ"]
    assert changed.secret.reveal() == "12345678"
    assert changed.default_topic == PUB
    assert changed.default_group == SUB
    assert changed.topics["topicB"] == PUB | SUB
    assert changed.is_whitelisted("10.1.2.3")
    cleared = UpdateAccount(access_key="RocketMQ", topic_perms="", white_remote_address="")
    assert rules_of(with_account(parse_document(APACHES), cleared, 1)).accounts["RocketMQ"].topics == {}


def test_an_account_is_removed() -> None:
    assert list(rules_of(without_account(parse_document(APACHES), "RocketMQ", 1)).accounts) == ["rocketmq2"]


def test_the_white_list_is_replaced() -> None:
    read = rules_of(with_white_list(parse_document(APACHES), ["10.1.2.{3,4}"], 1))
    assert read.is_whitelisted("10.1.2.4")
    assert not read.is_whitelisted("10.10.103.7")


def test_a_comma_in_braces_is_not_a_separator() -> None:
    assert comma_list(" 10.1.2.{3,4} ,10.1.2.9,, ") == ["10.1.2.{3,4}", "10.1.2.9"]


keys = st.text(min_size=7, max_size=12).filter(str.isprintable) | st.from_regex(r"[0-9:_. '\"#&*!-]{7}", fullmatch=True)


@settings(deadline=None)
@given(st.lists(st.tuples(keys, keys), max_size=4, unique_by=lambda pair: pair[0]))
def test_what_is_saved_is_read_back(pairs: list[tuple[str, str]]) -> None:
    disk, path = SimulatedDisk(), Path("/conf/plain_acl.yml")
    disk.make_directory(path.parent)
    document: dict[str, object] = {}
    for key, secret in pairs:
        document = with_account(document, UpdateAccount(access_key=key, secret_key=secret, topic_perms="a=PUB|SUB"), 5)
    save_document(disk, path, document)
    read, read_rules_again = read_rules(disk, path)
    found = [(each.access_key, each.secret.reveal()) for each in read_rules_again.accounts.values()]
    assert found == pairs
    assert read.get("accounts") == document.get("accounts")


def test_a_missing_file_is_reported_with_a_hint() -> None:
    with pytest.raises(SettingsError, match="create it with an admin account, or set aclEnable=false"):
        read_rules(SimulatedDisk(), Path("/conf/plain_acl.yml"))
