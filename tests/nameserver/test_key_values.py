"""Key-value pairs: what `get` returns is saved, and saved pairs survive a failed save."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import RequestFailed, SettingsError
from ariane.nameserver.key_values import (
    FILE_BYTES_MAX,
    NAME_LENGTH_MAX,
    ORDER_TOPIC_CONFIG,
    VALUE_LENGTH_MAX,
    KeyValues,
)
from ariane.wire.codes import ResponseCode

APACHE_FILE = '{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4;broker-b:4","payments":"broker-a:8"}}}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kvConfig.json"


def test_a_pair_is_visible_in_its_own_namespace_only() -> None:
    pairs = KeyValues()
    pairs.put("one", "key", "value")
    assert pairs.get("one", "key") == "value"
    assert pairs.get("two", "key") is None
    assert pairs.get("one", "other") is None


def test_a_namespace_lists_its_pairs_and_is_removed_with_the_last_one() -> None:
    pairs = KeyValues()
    pairs.put("one", "a", "1")
    pairs.put("one", "b", "2")
    assert pairs.namespace("one") == {"a": "1", "b": "2"}
    assert pairs.delete("one", "a")
    assert pairs.namespace("one") == {"b": "2"}
    assert pairs.delete("one", "b")
    assert pairs.namespace("one") is None


def test_deleting_what_is_not_there_says_so() -> None:
    pairs = KeyValues()
    assert not pairs.delete("one", "a")
    pairs.put("one", "b", "2")
    assert not pairs.delete("one", "a")


def test_a_listing_handed_out_does_not_change_later() -> None:
    pairs = KeyValues()
    pairs.put("one", "a", "1")
    listing = pairs.namespace("one")
    pairs.put("one", "a", "2")
    assert listing == {"a": "1"}


def test_pairs_survive_a_restart(path: Path) -> None:
    KeyValues(path).put(ORDER_TOPIC_CONFIG, "orders", "broker-a:4")
    KeyValues(path).put("other", "key", "ключ 🗝")
    assert KeyValues(path).namespace(ORDER_TOPIC_CONFIG) == {"orders": "broker-a:4"}
    assert KeyValues(path).get("other", "key") == "ключ 🗝"


def test_without_a_path_pairs_live_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    KeyValues().put("one", "a", "1")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_an_empty_table_and_its_directory_is_made_on_the_first_save(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    pairs = KeyValues(path)
    assert pairs.namespace(ORDER_TOPIC_CONFIG) is None
    assert not path.parent.exists()
    pairs.put("one", "a", "1")
    assert KeyValues(path).get("one", "a") == "1"


def test_a_file_of_apache_is_read_and_written_back_byte_for_byte(path: Path) -> None:
    path.write_text(APACHE_FILE)
    pairs = KeyValues(path)
    assert pairs.get(ORDER_TOPIC_CONFIG, "orders") == "broker-a:4;broker-b:4"
    pairs.put(ORDER_TOPIC_CONFIG, "extra", "broker-a:1")
    assert pairs.delete(ORDER_TOPIC_CONFIG, "extra")
    assert path.read_text() == APACHE_FILE


def test_the_former_content_is_kept_as_bak(path: Path) -> None:
    path.write_text(APACHE_FILE)
    KeyValues(path).put("one", "a", "1")
    assert path.with_name("kvConfig.json.bak").read_text() == APACHE_FILE
    assert KeyValues(path).get("one", "a") == "1"


def test_a_change_to_the_same_value_writes_nothing(path: Path) -> None:
    path.write_text(APACHE_FILE)
    KeyValues(path).put(ORDER_TOPIC_CONFIG, "payments", "broker-a:8")
    assert not path.with_name("kvConfig.json.bak").exists()


def test_a_crash_between_write_and_rename_leaves_the_old_file(path: Path) -> None:
    path.write_text(APACHE_FILE)
    path.with_name("kvConfig.json.tmp").write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"ord')
    pairs = KeyValues(path)
    assert pairs.get(ORDER_TOPIC_CONFIG, "orders") == "broker-a:4;broker-b:4"
    pairs.put("one", "a", "1")
    assert KeyValues(path).get("one", "a") == "1"
    assert sorted(each.name for each in path.parent.iterdir()) == ["kvConfig.json", "kvConfig.json.bak"]


@pytest.mark.parametrize(("owner", "step"), [(os, "fsync"), (Path, "replace")])
def test_a_save_that_fails_changes_neither_memory_nor_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    path.write_text(APACHE_FILE)
    pairs = KeyValues(path)

    def disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, step, disk_full)
    with pytest.raises(RequestFailed, match="No space left on device; check the disk's free space") as failure:
        pairs.put(ORDER_TOPIC_CONFIG, "orders", "broker-c:4")
    assert failure.value.code == ResponseCode.SYSTEM_ERROR
    assert pairs.get(ORDER_TOPIC_CONFIG, "orders") == "broker-a:4;broker-b:4"
    assert path.read_text() == APACHE_FILE


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"configTable":{"ORDER_TOPIC_CONFIG":{"ord',
        b"{}",
        b'{"configTable":[]}',
        b'{"configTable":{"one":{"a":1}}}',
        b'{"configTable":{"one":{"a":"\xff"}}}',
        b'{"configTable":{"one":{"a":"line\\nbreak"}}}',
        b'{"configTable":{"one":{"":"value"}}}',
        b'{"configTable":{},"more":' + b"[" * 100_000,
        b" " * (FILE_BYTES_MAX + 1),
    ],
    ids=["empty", "cut", "no table", "a list", "a number", "not UTF-8", "control", "no key", "deep", "huge"],
)
def test_a_damaged_file_stops_the_start_with_a_hint(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(SettingsError) as failure:
        KeyValues(path)
    message = str(failure.value)
    assert str(path) in message
    assert "copy kvConfig.json.bak over it, or remove it" in message
    assert len(message) < 1_000
    assert path.read_bytes() == content


def test_a_path_that_cannot_be_read_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read the key-value file"):
        KeyValues(tmp_path)


@pytest.mark.parametrize(
    ("namespace", "key", "value", "problem"),
    [
        ("", "key", "value", "the namespace is empty"),
        ("one", "", "value", "the key is empty"),
        ("n" * (NAME_LENGTH_MAX + 1), "key", "value", "the namespace has 256 characters, at most 255"),
        ("one", "k" * (NAME_LENGTH_MAX + 1), "value", "the key has 256 characters, at most 255"),
        ("one", "key", "v" * (VALUE_LENGTH_MAX + 1), "the value has 8193 characters, at most 8192"),
        ("one\x00", "key", "value", "the namespace 'one\\x00' has a control character"),
        ("one", "key\x7f", "value", "the key 'key\\x7f' has a control character"),
        ("one", "key", "a\nb", "the value 'a\\nb' has a control character"),
        ("one", "key", "\ud800", "the value '\\ud800' has a control character"),
    ],
)
def test_an_invalid_pair_is_refused(path: Path, namespace: str, key: str, value: str, problem: str) -> None:
    pairs = KeyValues(path)
    with pytest.raises(RequestFailed) as failure:
        pairs.put(namespace, key, value)
    assert problem in failure.value.remark
    assert not path.exists()


def test_pairs_at_the_limits_and_an_empty_value_are_valid() -> None:
    pairs = KeyValues()
    pairs.put("n" * NAME_LENGTH_MAX, "k" * NAME_LENGTH_MAX, "v" * VALUE_LENGTH_MAX)
    pairs.put("one", "key", "")
    assert pairs.get("one", "key") == ""


@pytest.mark.parametrize("saved", [True, False])
def test_no_more_pairs_are_accepted_than_can_be_read_at_start(
    path: Path, monkeypatch: pytest.MonkeyPatch, saved: bool
) -> None:
    monkeypatch.setattr("ariane.nameserver.key_values.FILE_BYTES_MAX", 1_000)
    pairs = KeyValues(path if saved else None)
    pairs.put("one", "a", "v" * 600)
    with pytest.raises(RequestFailed, match="at most 1000 are allowed; delete some"):
        pairs.put("one", "b", "v" * 600)
    assert pairs.get("one", "b") is None
    assert not saved or KeyValues(path).namespace("one") == {"a": "v" * 600}


valid_text = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)


@settings(max_examples=30, deadline=None)  # every example waits for the disk
@given(st.dictionaries(st.tuples(valid_text, valid_text), valid_text, max_size=8))
def test_any_valid_pairs_come_back_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, table: dict[tuple[str, str], str]
) -> None:
    path = tmp_path_factory.mktemp("pairs") / "kvConfig.json"
    pairs = KeyValues(path)
    for (namespace, key), value in table.items():
        pairs.put(namespace, key, value)
    again = KeyValues(path)
    for (namespace, key), value in table.items():
        assert again.get(namespace, key) == value
