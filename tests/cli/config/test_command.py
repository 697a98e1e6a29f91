"""`ariane config show`: each setting, its value and where it came from."""

import json
from pathlib import Path

import pytest

from ariane.broker.settings import BrokerSettings
from ariane.cli.main import main
from ariane.settings import describe


@pytest.fixture(autouse=True)
def no_settings_of_the_calling_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, object]]:
    assert main(["config", "show", *arguments, "-o", "json"]) == 0
    return {row["setting"]: row for row in json.loads(capsys.readouterr().out)}


def test_each_value_has_its_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# ours\nbrokerName=b\ntls.server.keyPassword=hunter2\n")
    monkeypatch.setenv("ARIANE_BROKER__STORE__RETENTION_HOURS", "7")
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:9876")
    rows = shown(capsys, "-c", str(conf))
    assert (rows["name"]["value"], rows["name"]["origin"]) == ("b", f"{conf}:2")
    assert rows["store.retention_hours"]["origin"] == "ARIANE_BROKER__STORE__RETENTION_HOURS"
    assert (rows["namesrv_addr"]["value"], rows["namesrv_addr"]["origin"]) == ("127.0.0.1:9876", "NAMESRV_ADDR")
    assert (rows["port"]["value"], rows["port"]["origin"]) == (10911, "default")
    assert rows["tls.key_password"]["value"] == "(secret)"
    assert list(rows) == [declared.name for declared in describe(BrokerSettings)]


def test_the_variable_of_ariane_wins_over_that_of_apache(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    monkeypatch.setenv("ARIANE_BROKER__NAMESRV_ADDR", "127.0.0.1:2")
    assert shown(capsys)["namesrv_addr"]["value"] == "127.0.0.1:2"


def test_the_table_has_the_origin_with_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["setting", "value"]
    assert main(["config", "show", "--origin"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["setting", "value", "origin"]


def test_the_nameserver_has_its_own_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "--section", "nameserver")["port"]["value"] == 9876


def test_an_unused_key_is_a_warning_and_an_error_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("haListenPort=10912\n")
    assert main(["config", "show", "-c", str(conf)]) == 0
    assert "haListenPort is not used: the replication port is listenPort + 1" in capsys.readouterr().err
    conf.write_text("listenprot=1\n")
    assert main(["config", "show", "-c", str(conf)]) == 2
    assert "did you mean 'listenPort'?" in capsys.readouterr().err
