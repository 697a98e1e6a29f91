import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.settings import BrokerSettings
from ariane.broker.unsupported_settings import UNSUPPORTED as UNSUPPORTED_BY_BROKER
from ariane.nameserver.settings import UNSUPPORTED, NameserverSettings
from ariane.settings import describe

ROOT = Path(__file__).parents[1]


def test_the_page_of_settings_is_up_to_date() -> None:
    script = ROOT / "scripts" / "settings_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("settings", "unsupported"), [(NameserverSettings, UNSUPPORTED), (BrokerSettings, UNSUPPORTED_BY_BROKER)]
)
def test_the_page_of_settings_has_every_setting_and_every_key(settings: Any, unsupported: dict[str, str]) -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    names = [declared.name.rpartition(".")[2] for declared in describe(settings)]
    keys = [key.name for declared in describe(settings) for key in declared.keys]
    for word in (*names, *keys, *unsupported):
        assert f"`{word}`" in page, word


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text))
    assert len(named) > 10
    missing = [name for name in named if not any((ROOT / root / name).exists() for root in ("", "src/ariane"))]
    assert not missing
