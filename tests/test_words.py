"""Private words stay out: code, comments, errors and pages use the words of the field (docs/glossary.md).

Each word below was once a name or a phrase of this project only, which each reader had to learn. The budget
of all is 0; an exception names its file and its reason.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("src", "tests", "bench", "examples", "interop", "scripts", "docs", "*.md", "Makefile")

WORDS = {
    "asker": "client, caller",
    "classroom": "sandbox",
    "cure|cures": "fix, hint",
    "desk|desks": "admin requests, inspector",
    "envelope|envelopes": "prepared message",
    "errand|errands": "blocking call, session",
    "expel|expelled": "evict",
    "fronts": "record prefixes",
    "general way": "general path",
    "guest|guests": "peer, client",
    "halves": "half messages",
    "intake": "writer",
    "lane|lanes": "fast path, queue, segment",
    "mend|mends|mended": "fix",
    "newcomer|newcomers": "new connection, new member",
    "parcel|parcels": "send request, batch",
    "seal|seals|sealed": "prepare, record checksum",
    "straight line": "fast path",
    "such a one": "the noun",
    "teller": "callback, handler",
    "told": "reported, logged, returned, set",
    "turn of the loop|turn of the event loop": "event-loop iteration",
    "what became of": "outcome",
    "whoever|whomever": "the client, the caller",
    "wishes": "options",
}
"""Each private word, and what to say instead."""

EXCEPTIONS = {
    "tests/test_words.py": "has the list",
    "CHANGELOG.md": "names what was renamed",
}

PUBLIC = re.compile(r'seal_records|"cure"|\.cure\b|cure: str|, cure\b|"lanes"|`lanes`|lane-')
"""Names that users have in files and scripts, which stay: a setting, a key of JSON output, and files of a replay."""


def text_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PLACES],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return [ROOT / name for name in listed if name not in EXCEPTIONS and not name.startswith("tests/golden/")]


def uses(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in text_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for number, line in enumerate(lines, start=1):
            if match := pattern.search(PUBLIC.sub("", line)):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]!r} in {line.strip()[:100]}")
    return found


def test_no_private_word_is_used() -> None:
    """Words inside identifiers count too: `told_by` and `_lane`, but not `planes`."""
    pattern = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(WORDS)})(?![A-Za-z])", re.IGNORECASE)
    found = uses(pattern)
    assert not found, f"{len(found)} private words; WORDS has better ones:\n" + "\n".join(found[:50])


def test_each_exception_still_needs_to_be_one() -> None:
    pattern = re.compile("|".join(WORDS), re.IGNORECASE)
    assert [name for name in EXCEPTIONS if not pattern.search((ROOT / name).read_text(encoding="utf-8"))] == []
