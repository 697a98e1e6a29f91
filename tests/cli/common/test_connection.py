"""Which cluster a command talks to: flag, profile, variable, a running `ariane up`, default."""

import json
import os
from pathlib import Path

import pytest

from ariane.cli.common.connection import find_connection, find_running_up
from ariane.errors import SettingsError
from tests.testing.commands import run, up


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def profile(tmp_path: Path, name: str, text: str) -> dict[str, str]:
    (tmp_path / "ariane").mkdir(exist_ok=True)
    (tmp_path / "ariane" / f"{name}.toml").write_text(text)
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_a_flag_wins_over_everything(tmp_path: Path) -> None:
    environ = profile(tmp_path, "prod", '[client]\nnameservers = "10.0.0.1:9876"\n') | {"NAMESRV_ADDR": "b:2"}
    found = find_connection("a:1", "prod", environ)
    assert (found.namesrv, found.origin) == ("a:1", "flag")


def test_a_profile_wins_over_the_variable_of_apache(tmp_path: Path) -> None:
    text = '[client]\nnameservers = "10.0.0.1:9876"\naccess_key = "me"\nsecret_key = "hush"\n'
    found = find_connection(None, "prod", profile(tmp_path, "prod", text) | {"NAMESRV_ADDR": "b:2"})
    assert found.namesrv == "10.0.0.1:9876"
    assert found.settings.access_key == "me"
    assert found.origin.endswith("prod.toml:2")


def test_the_variable_of_apache_counts() -> None:
    found = find_connection(None, None, {"NAMESRV_ADDR": "b:2;c:3"})
    assert (found.namesrv, found.origin) == ("b:2;c:3", "NAMESRV_ADDR")


def test_the_default_is_this_machine() -> None:
    found = find_connection(None, None, {})
    assert (found.namesrv, found.origin) == ("127.0.0.1:9876", "default")


def test_a_running_ariane_up_is_found_and_a_crashed_one_is_not(tmp_path: Path) -> None:
    with up(cwd=tmp_path) as servers:
        found = find_connection(None, None, {})
        assert (found.namesrv, found.origin) == (servers.namesrv, "ariane up")
        servers.process.kill()
        servers.process.wait()
    assert json.loads((tmp_path / ".ariane" / "up.json").read_text())["namesrv"] == servers.namesrv
    assert find_connection(None, None, {}).origin == "default"


@pytest.mark.parametrize("content", ["", "nonsense", "[]", "{}", '{"namesrv": 7}', '{"namesrv": "nowhere"}'])
def test_an_invalid_address_file_is_ignored(tmp_path: Path, content: str) -> None:
    import subprocess
    import sys

    path = tmp_path / ".ariane" / "up.json"
    path.parent.mkdir()
    path.write_text(content)
    holding = "import fcntl,sys;f=open(sys.argv[1],'r+');fcntl.lockf(f,fcntl.LOCK_EX,1,0);print(flush=True);input()"
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert find_running_up(path.parent) is None
        holder.communicate(b"\n")


@pytest.mark.parametrize("name", ["missing", "../etc/passwd", "a b", "."])
def test_a_missing_profile_is_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="profile"):
        find_connection(None, name, {"XDG_CONFIG_HOME": str(tmp_path)})


def test_an_unreadable_profile_is_reported(tmp_path: Path) -> None:
    (tmp_path / "ariane" / "prod.toml").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"prod\.toml: cannot read this settings file"):
        find_connection(None, "prod", {"XDG_CONFIG_HOME": str(tmp_path)})


def test_an_error_in_a_profile_ends_with_2(tmp_path: Path) -> None:
    environ = profile(tmp_path, "prod", '[client]\nnameserver = "10.0.0.1:9876"\n')
    outcome = run("send", "orders", "x", "--profile", "prod", cwd=tmp_path, **environ)
    assert outcome.status == 2
    assert "did you mean 'nameservers'?" in outcome.err
    assert os.environ.get("ARIANE_PROFILE") is None


@pytest.mark.parametrize("text", ["nowhere", "a:b", ";"])
def test_an_invalid_address_is_reported(text: str) -> None:
    with pytest.raises(SettingsError):
        find_connection(text, None, {})
