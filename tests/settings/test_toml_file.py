"""The TOML reader: dotted names, line numbers and syntax errors."""

import pytest

from ariane.errors import SettingsError
from ariane.settings.toml_file import TomlEntry, read_toml


def test_tables_become_dotted_names_with_their_lines() -> None:
    text = '[nameserver]\nport = 1\n\n[ nameserver . transport ]\n"backlog" = 2 # two\n'
    assert list(read_toml(text)) == [
        TomlEntry(2, "nameserver.port", 1),
        TomlEntry(5, "nameserver.transport.backlog", 2),
    ]


def test_dotted_keys_and_inline_tables_are_the_same_as_tables() -> None:
    text = "nameserver.port = 1\n[nameserver.tls]\n[broker]\nstore = { a = 1, b = 2 }"
    assert list(read_toml(text)) == [
        TomlEntry(1, "nameserver.port", 1),
        TomlEntry(2, "nameserver.tls", {}),
        TomlEntry(4, "broker.store.a", 1),
        TomlEntry(4, "broker.store.b", 2),
    ]


def test_invalid_toml_names_the_line() -> None:
    with pytest.raises(SettingsError, match=r"not TOML: .*line 2"):
        list(read_toml("[nameserver]\nport 9876"))


def test_endless_nesting_is_an_error_and_not_a_crash() -> None:
    with pytest.raises(SettingsError, match="not TOML"):
        list(read_toml("a = " + "[" * 100_000))
