"""Commands whose stdin, stdout or stderr is closed, or has a limited encoding."""

import subprocess

import pytest

from ariane.testing.broker import BrokerForTests
from tests.cli.command_line import ENVIRONMENT, HANG_S, PROGRAM


def run(namesrv: str, words: str | bytes, redirections: str = "", **variables: str) -> tuple[int, bytes, bytes]:
    """Runs it by a shell, which can close streams."""
    script = f'exec "$@" {redirections}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *PROGRAM, *words.split(), "-n", namesrv],
        env=ENVIRONMENT | variables,
        capture_output=True,
        timeout=HANG_S,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def chinese(shared_broker: BrokerForTests) -> str:
    """A topic with a message that is not ASCII."""
    shared_broker.create_topic("chinese", queues=1)
    shared_broker.send("chinese", "你好".encode())
    return "chinese"


def test_a_closed_stdin_is_empty_input(shared_broker: BrokerForTests, chinese: str) -> None:
    status, _, err = run(shared_broker.namesrv, f"send {chinese} -", "<&-")
    assert (status, b"nothing was sent" in err) == (0, True)


def test_a_closed_stdin_cannot_confirm(shared_broker: BrokerForTests, chinese: str) -> None:
    status, _, err = run(shared_broker.namesrv, f"topic delete {chinese}", "<&-")
    assert (status, b"cannot ask for confirmation" in err) == (2, True)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_works_with_closed_streams(shared_broker: BrokerForTests, chinese: str, closed: str) -> None:
    assert run(shared_broker.namesrv, "topic list", closed)[0] == 0
    assert run(shared_broker.namesrv, f"tail {chinese} --from earliest --exit-at-end", closed)[0] == 0


@pytest.mark.parametrize(
    ("encoding", "shown"), [("utf-8", "你好".encode()), ("ascii", "你好".encode()), ("latin-1", rb"\u4f60\u597d")]
)
@pytest.mark.parametrize("words", ["tail chinese --from earliest --exit-at-end", "msg find chinese"])
def test_every_text_can_be_printed(
    shared_broker: BrokerForTests, chinese: str, words: str, encoding: str, shown: bytes
) -> None:
    status, out, err = run(shared_broker.namesrv, words, PYTHONIOENCODING=encoding)
    assert (status, err) == (0, b"")
    assert shown in out


def test_an_argument_that_is_not_utf_8_is_reported(shared_broker: BrokerForTests) -> None:
    status, _, err = run(shared_broker.namesrv, b"topic show \xff")
    assert (status, err.count(b"\n")) == (2, 1)
    assert rb"'\udcff' is not UTF-8 text" in err
