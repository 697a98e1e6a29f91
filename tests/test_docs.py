import subprocess
import sys
from pathlib import Path

from ariane.nameserver.settings import UNSUPPORTED, NameserverSettings
from ariane.settings import describe

ROOT = Path(__file__).parents[1]


def test_the_page_of_settings_is_up_to_date() -> None:
    script = ROOT / "scripts" / "settings_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_of_settings_has_every_setting_and_every_key() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    names = [declared.name.rpartition(".")[2] for declared in describe(NameserverSettings)]
    keys = [key.name for declared in describe(NameserverSettings) for key in declared.keys]
    for word in (*names, *keys, *UNSUPPORTED):
        assert f"`{word}`" in page, word
