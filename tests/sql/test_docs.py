"""Runs every command of docs/sql.md."""

import json
import shlex
from pathlib import Path

import pytest

from ariane.arrow.schema import COLUMNS
from ariane.cli.main import main
from ariane.sql.tables import BODY_JSON, BODY_TEXT
from ariane.testing import running_broker

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"


def commands() -> list[list[str]]:
    """Of all blocks in bash. Spark has its own tests."""
    blocks = PAGE.read_text(encoding="utf-8").split("```bash\n")[1:]
    lines = [line for block in blocks for line in block.split("```")[0].splitlines()]
    return [shlex.split(line)[1:] for line in lines if "--engine spark" not in line]


def test_every_example_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with running_broker(tmp_path / "store") as broker:
        broker.create_topic("orders", queues=2)
        broker.create_topic("%DLQ%billing", queues=1)
        for number in range(8):
            body = json.dumps({"user": f"u{number % 3}", "amount": number}).encode()
            broker.send("orders", body, tags="paid" if number % 2 else "shipped", keys=[f"order-{number}"])
        monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv)
        monkeypatch.delenv("ARIANE_CLIENT__NAMESERVERS", raising=False)
        assert len(commands()) > 8
        for arguments in commands():
            # the broker runs in this process, so its lock does not show that it is running
            status = main(arguments) if "--store" not in arguments else 0
            assert status == 0, (arguments, capsys.readouterr())
    assert main(next(arguments for arguments in commands() if "--store" in arguments)) == 0
    assert "scanned 8 messages of orders (2 queues), complete" in capsys.readouterr().err


def test_the_page_has_every_column() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in (*COLUMNS, BODY_TEXT, BODY_JSON) if f"`{name}`" not in page] == []
