"""docs/protocol.md is up to date and complete."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATOR = runpy.run_path(str(ROOT / "scripts" / "protocol_docs.py"))


def test_the_page_is_fresh() -> None:
    written = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert written == GENERATOR["page"](), "run `python scripts/protocol_docs.py`"


def test_the_page_names_required_and_optional_fields() -> None:
    page = GENERATOR["page"]()
    assert (
        "| 105 | GET_ROUTEINFO_BY_TOPIC | `topic: text!`, `acceptStandardJsonOnly: bool` | body: JSON TopicRoute |"
        in page
    )


def test_the_page_says_why_a_request_is_refused() -> None:
    assert "CVE-2023-37582" in GENERATOR["page"]()
