"""The guard: which requests are allowed and denied, changes of accounts, and reloading of the file."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from ariane.acl.accounts import POLL_INTERVAL_S
from ariane.broker.acl.guard import AccessControl
from ariane.clock import Clock
from ariane.errors import RequestFailed, SettingsError
from ariane.store.disk import RealDisk
from ariane.testing import FakeClock
from ariane.transport.connection import Connection
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.fields import Request
from ariane.wire.frame import Command
from ariane.wire.requests.acl import GetAccessRules, UpdateAccount
from ariane.wire.requests.brokers import GetRuntimeInfo
from ariane.wire.requests.messages import QueryMessages
from ariane.wire.requests.offsets import GetMaxOffset, UpdateConsumerOffset
from ariane.wire.requests.send import SendMessageV2
from ariane.wire.requests.topics import DeleteTopicInBroker
from ariane.wire.signature import content_to_sign, sign

FILE = """
globalWhiteRemoteAddresses: [10.9.9.*]
accounts:
- accessKey: producer1
  secretKey: secret-of-1
  topicPerms: [orders=PUB]
- accessKey: consumer1
  secretKey: secret-of-2
  defaultGroupPerm: SUB
  topicPerms: [orders=SUB]
- accessKey: administrator
  secretKey: secret-of-3
  whiteRemoteAddress: 10.7.7.7
  admin: true
- accessKey: neighbour
  secretKey: secret-of-4
  whiteRemoteAddress: 10.8.8.8
"""
QUERY = QueryMessages(topic="orders", key="k", max_num=1, begin_timestamp=0, end_timestamp=1, unique_key_query=True)
SECRETS = {
    "producer1": "secret-of-1",
    "consumer1": "secret-of-2",
    "administrator": "secret-of-3",
    "neighbour": "secret-of-4",
}


def file_in(directory: Path, content: str = FILE) -> Path:
    path = directory / "plain_acl.yml"
    path.write_text(content)
    return path


@pytest.fixture
def access(tmp_path: Path) -> AccessControl:
    return AccessControl(RealDisk(), file_in(tmp_path), Clock())


async def peer(address: str = "192.0.2.1:4711") -> Connection:
    connection = Connection(lambda *_: None, TransportSettings(), Clock(), lambda _: None)
    connection.peer = address
    return connection


def signed(
    request: Request[Any], key: str, secret: str | None = None, *, with_unique_key_query: bool = False
) -> Command:
    command = request_command(request, opaque=1)
    ext = command.ext | {"AccessKey": key, "OnsChannel": "ALIYUN"}
    content = content_to_sign(ext, command.body, with_unique_key_query=with_unique_key_query)
    command.ext_texts = ext | {"Signature": sign(SECRETS[key] if secret is None else secret, content)}
    return command


def sending(topic: str, body: bytes = b"body") -> SendMessageV2:
    return SendMessageV2(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        body=body,
    )


async def error_remark(
    access: AccessControl, request: Request[Any], command: Command, address: str = "192.0.2.1:4711"
) -> str | None:
    """The remark of the error response; None if the request is allowed."""
    try:
        access.guard(await peer(address), command, request)
    except RequestFailed as error:
        assert error.code == ResponseCode.NO_PERMISSION  # noqa: PT017
        return error.remark
    return None


async def test_an_allowed_request_passes(access: AccessControl) -> None:
    request = sending("orders")
    assert await error_remark(access, request, signed(request, "producer1")) is None


async def test_the_topic_must_be_allowed(access: AccessControl) -> None:
    for topic, key in (("other", "producer1"), ("orders", "consumer1")):
        request = sending(topic)
        assert await error_remark(access, request, signed(request, key)) == f"No default permission for topic:{topic}"


async def test_the_group_must_be_allowed(access: AccessControl) -> None:
    request = UpdateConsumerOffset("g", "orders", 0, 5)  # type: ignore[arg-type]
    assert await error_remark(access, request, signed(request, "consumer1")) is None
    assert await error_remark(access, request, signed(request, "producer1")) == "No default permission for topic:orders"


async def test_either_permission_allows_reading_the_offsets_of_a_topic(access: AccessControl) -> None:
    request = GetMaxOffset("orders", 0)
    assert await error_remark(access, request, signed(request, "producer1")) is None
    assert await error_remark(access, request, signed(request, "consumer1")) is None
    assert await error_remark(access, request, signed(request, "neighbour")) == "No default permission for topic:orders"


async def test_any_account_may_request_runtime_information(access: AccessControl) -> None:
    request = GetRuntimeInfo()
    assert await error_remark(access, request, signed(request, "neighbour")) is None


async def test_a_request_without_a_key_is_denied(access: AccessControl) -> None:
    request = sending("orders")
    assert await error_remark(access, request, request_command(request, opaque=1)) == "No accessKey is configured"
    empty = signed(request, "", "")  # as C++ clients sign without credentials
    assert await error_remark(access, request, empty) == "No accessKey is configured"


async def test_an_unknown_key_does_not_pass(access: AccessControl) -> None:
    request = sending("orders")
    assert await error_remark(access, request, signed(request, "stranger", "whatever")) == "No acl config for stranger"


async def test_a_wrong_secret_does_not_pass(access: AccessControl) -> None:
    request = sending("orders")
    command = signed(request, "producer1", "wrong secret")
    assert await error_remark(access, request, command) == "Check signature failed for accessKey=producer1"


async def test_a_changed_header_or_body_does_not_pass(access: AccessControl) -> None:
    request = sending("orders")
    command = signed(request, "producer1")
    command.body = b"another body"
    assert await error_remark(access, request, command) == "Check signature failed for accessKey=producer1"
    command = signed(request, "producer1")
    command.ext["b"] = "payments"
    assert await error_remark(access, request, command) == "Check signature failed for accessKey=producer1"
    command = signed(request, "producer1")
    del command.ext["Signature"]
    assert await error_remark(access, request, command) == "Check signature failed for accessKey=producer1"


async def test_both_ways_to_sign_a_query_by_unique_key_pass(access: AccessControl) -> None:
    request = QUERY
    for form in (False, True):
        assert await error_remark(access, request, signed(request, "consumer1", with_unique_key_query=form)) is None


async def test_administration_is_for_administrators(access: AccessControl) -> None:
    request = DeleteTopicInBroker("orders")
    assert await error_remark(access, request, signed(request, "administrator")) is None
    expected = "Need admin permission for request code=215, but accessKey=producer1 is not"
    assert await error_remark(access, request, signed(request, "producer1")) == expected


async def test_the_global_white_list_needs_no_key(access: AccessControl) -> None:
    for request in (sending("other"), DeleteTopicInBroker("orders")):
        assert await error_remark(access, request, request_command(request, opaque=1), "10.9.9.1:5000") is None
        assert await error_remark(access, request, request_command(request, opaque=1), "10.9.8.1:5000") is not None


async def test_the_global_white_list_does_not_allow_account_management(access: AccessControl) -> None:
    request = GetAccessRules()
    assert (
        await error_remark(access, request, request_command(request, opaque=1), "10.9.9.1:5000")
        == "No accessKey is configured"
    )
    assert await error_remark(access, request, signed(request, "administrator"), "10.9.9.1:5000") is None
    assert await error_remark(access, request, signed(request, "producer1"), "10.9.9.1:5000") is not None


async def test_an_accounts_own_address_needs_no_signature(access: AccessControl) -> None:
    request = sending("other")
    command = signed(request, "neighbour", "wrong secret")
    assert await error_remark(access, request, command, "10.8.8.8:5000") is None
    assert (
        await error_remark(access, request, command, "10.8.8.9:5000")
        == "Check signature failed for accessKey=neighbour"
    )


async def test_an_accounts_own_address_does_not_make_it_an_administrator(access: AccessControl) -> None:
    request = GetAccessRules()
    remark = "Need admin permission for request code=54, but accessKey=neighbour is not"
    assert await error_remark(access, request, signed(request, "neighbour"), "10.8.8.8:5000") == remark
    assert await error_remark(access, request, signed(request, "administrator", "wrong"), "10.7.7.7:5000") is None


async def test_a_denied_request_is_logged_without_secrets(
    access: AccessControl, caplog: pytest.LogCaptureFixture
) -> None:
    request = sending("other")
    await error_remark(access, request, signed(request, "producer1"))
    (record,) = [entry for entry in caplog.records if entry.message == "access refused"]
    assert record.__dict__["peer"] == "192.0.2.1:4711"
    assert "secret" not in str(record.__dict__)


async def test_repeated_denials_are_logged_once(access: AccessControl, caplog: pytest.LogCaptureFixture) -> None:
    """Anybody can send requests that are refused: they must not fill the disk with the log."""
    request = sending("other")
    for port in range(1000, 1100):
        await error_remark(access, request, request_command(request, opaque=0), f"192.0.2.1:{port}")
        await error_remark(access, request, signed(request, "producer1"), f"192.0.2.1:{port}")
    refused = [entry.__dict__["reason"] for entry in caplog.records if entry.message == "access refused"]
    assert refused == ["No accessKey is configured", "No default permission for topic:other"]


# --- changes and the file ---------------------------------------------------------------------------------------------


def test_a_change_is_in_the_file_when_it_is_made(access: AccessControl, tmp_path: Path) -> None:
    access.put_account(UpdateAccount(access_key="new-account", secret_key="secret-of-5", topic_perms="orders=PUB"))
    access.delete_account("neighbour")
    access.set_white_list(["10.1.1.1"])
    again = AccessControl(RealDisk(), tmp_path / "plain_acl.yml", Clock())
    assert list(again.rules.accounts) == ["producer1", "consumer1", "administrator", "new-account"]
    assert again.rules.is_whitelisted("10.1.1.1")
    assert again.rules.version.counter == 3
    assert again.rules.version == access.rules.version
    assert os.stat(tmp_path / "plain_acl.yml").st_mode & 0o077 == 0


def test_an_illegal_change_changes_nothing(access: AccessControl, tmp_path: Path) -> None:
    before = (tmp_path / "plain_acl.yml").read_bytes()
    for change in (
        UpdateAccount(access_key="short", secret_key="secret-of-5"),
        UpdateAccount(access_key="new-account"),
        UpdateAccount(access_key="producer1", topic_perms="orders=RW"),
        UpdateAccount(access_key="producer1", white_remote_address="10.1"),
    ):
        with pytest.raises(ValueError, match=r"must be|not a permission|not an address"):
            access.put_account(change)
    with pytest.raises(ValueError, match="not an address"):
        access.set_white_list(["nonsense"])
    assert access.delete_account("stranger") is False
    assert (tmp_path / "plain_acl.yml").read_bytes() == before
    assert "new-account" not in access.rules.accounts


def test_a_change_builds_on_what_an_editor_just_wrote(access: AccessControl, tmp_path: Path) -> None:
    file_in(tmp_path, FILE + "- accessKey: by-editor\n  secretKey: secret-of-6\n")
    access.put_account(UpdateAccount(access_key="new-account", secret_key="secret-of-5"))
    assert {"by-editor", "new-account"} <= set(access.rules.accounts)


def test_a_change_on_top_of_a_broken_file_is_refused(access: AccessControl, tmp_path: Path) -> None:
    file_in(tmp_path, "accounts: [")
    with pytest.raises(SettingsError, match="is invalid"):
        access.delete_account("neighbour")
    assert "neighbour" in access.rules.accounts


async def test_a_changed_file_is_loaded(access: AccessControl, tmp_path: Path) -> None:
    file_in(tmp_path, FILE.replace("orders=PUB", "orders=PUB|SUB"))
    await access.reload_if_changed()
    request = QUERY
    assert await error_remark(access, request, signed(request, "producer1")) is None


async def test_a_file_that_did_not_change_is_not_read(access: AccessControl) -> None:
    rules = access.rules
    await access.reload_if_changed()
    assert access.rules is rules


@pytest.mark.parametrize("content", ["accounts: [", "accounts: 5", None])
async def test_a_broken_file_keeps_the_old_rules(
    access: AccessControl, tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    if content is None:
        (tmp_path / "plain_acl.yml").unlink()
    else:
        file_in(tmp_path, content)
    rules = access.rules
    with caplog.at_level(logging.ERROR):
        await access.reload_if_changed()
        await access.reload_if_changed()
    assert access.rules is rules
    assert [entry.message for entry in caplog.records] == ["access file is invalid, the old rules stay"]
    file_in(tmp_path, FILE + "- accessKey: repaired\n  secretKey: secret-of-7\n")
    await access.reload_if_changed()
    assert "repaired" in access.rules.accounts


async def test_the_file_is_checked_periodically(tmp_path: Path) -> None:
    clock = FakeClock()
    async with AccessControl.open(RealDisk(), file_in(tmp_path), clock) as access:
        file_in(tmp_path, "")
        await clock.advance(POLL_INTERVAL_S)
        while access.rules.accounts:  # the file is read in a thread
            await clock.advance(0)


async def test_a_broken_file_at_the_start_stops_the_broker(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"plain_acl\.yml is invalid"):
        async with AccessControl.open(RealDisk(), file_in(tmp_path, "accounts: 5"), FakeClock()):
            pass
