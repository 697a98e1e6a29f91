"""What is found and read by the comparison of interpreters; the benches themselves are tested with the broker."""

import sys
from pathlib import Path

import pytest

from bench.interpreters import IN_PROCESS, Interpreter, described, figure, found, lines
from interop.processes import InteropError


def test_an_interpreter_is_known_by_its_version() -> None:
    assert described(sys.executable).version == sys.version.split()[0]


def test_each_version_is_measured_once() -> None:
    assert len(found([sys.executable, sys.executable])) == 1


def test_a_named_interpreter_must_run(tmp_path: Path) -> None:
    broken = tmp_path / "python3.11"
    broken.write_text("#!/bin/sh\necho no such version >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(InteropError, match="no such version"):
        found([str(broken)])


def test_what_leads_nowhere_on_the_path_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python3.11").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3.11").chmod(0o755)
    (tmp_path / "python3.12").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [interpreter.version for interpreter in found([])] == [sys.version.split()[0]]


def test_a_transaction_is_its_half_message_and_its_commit() -> None:
    assert figure("9.25 us a message: 1 x 1024 B, JSON\n") == 9.25
    printed = (
        "plain        8.0 us   1.0 x\nhalf        10.5 us   1.3 x\ncommit      20.0 us  2.5 x\nrollback 9.0 us  1 x\n"
    )
    assert figure(printed) == 30.5


def test_ratios_are_to_the_first_interpreter() -> None:
    cheap, dear = (
        Interpreter("/bin/python", version, dict.fromkeys(IN_PROCESS, us), [1e6 / us], [us], 80.0)
        for version, us in (("3.11.7", 10.0), ("3.13.0", 15.0))
    )
    assert [line.split()[-3] for line in lines([cheap, dear])][2:] == ["1.00", "1.50"]
