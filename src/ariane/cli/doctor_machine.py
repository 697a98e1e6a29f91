"""Checks of this machine: Python and its packages, Java, limits, memory, the clock."""

import ctypes
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ariane.cli.doctor_findings import Finding, failure, ok, warning
from ariane.errors import SettingsError

EXTRAS = {
    "arrow": ("pyarrow",),
    "sql": ("duckdb", "pyarrow"),
    "spark": ("pyspark", "pyarrow", "pandas"),
    "delta": ("deltalake", "pyarrow"),
    "iceberg": ("pyiceberg", "pyarrow"),
}
PYTHON_MIN = (3, 11)
OPEN_FILES_MIN = 4096
MEMORY_MIN_MB = 256
_MEMINFO = Path("/proc/meminfo")
_YEAR_2024_S = 1_704_067_200
_TIME_ERROR = 5  # adjtimex: nobody has set the clock by another one
_TIMEX_BYTES = 512  # more than any platform's struct timex


def check_python() -> Iterator[Finding]:
    told = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info[:2] < PYTHON_MIN:
        yield failure("python", told, "install Python 3.11 or later")
    elif platform.system() != "Linux":
        yield warning("python", told, "run brokers on Linux: the store relies on its file system calls")
    else:
        yield ok("python", told)


def check_extras() -> Iterator[Finding]:
    missing = {extra for extra, modules in EXTRAS.items() if any(find_spec(module) is None for module in modules)}
    there = ", ".join(extra for extra in EXTRAS if extra not in missing) or "none"
    hint = "".join(f"; {extra} is not: pip install 'ariane[{extra}]'" for extra in EXTRAS if extra in missing)
    yield ok("extras", f"installed: {there}{hint}")


def check_java() -> Iterator[Finding]:
    """Only Spark needs it."""
    from ariane.spark.java import find_java

    if find_spec("pyspark") is None:
        yield ok("java", "not needed: pyspark is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="ariane-doctor-") as shim:
        try:
            java = find_java(os.environ, Path(shim))
        except SettingsError as error:
            found, _, cure = str(error).partition(": ")
            yield warning("java", found, cure or "install Java 17 or later")
            return
    yield ok("java", f"Java {java.version} for Spark, from {java.origin}")


def check_open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_MIN:
        yield ok("open files", f"a process may open {_limit(soft)} files")
        return
    cure = f"run ulimit -n {_limit(hard)} before starting a broker, or set LimitNOFILE= in its systemd unit"
    yield warning("open files", f"a process may open only {soft} files, and each connection and queue takes some", cure)


def _limit(number: int) -> str:
    return "unlimited" if number == resource.RLIM_INFINITY else str(number)


def check_memory() -> Iterator[Finding]:
    available = _available_mb()
    if available is None:
        yield warning("memory", "this system does not tell how much is free", "see that 256 MB are")
    elif available < MEMORY_MIN_MB:
        cure = "stop something, or give the machine more: a broker needs about 100 MB, and the rest caches messages"
        yield warning("memory", f"only {available} MB are available", cure)
    else:
        yield ok("memory", f"{available:,} MB are available")


def _available_mb() -> int | None:
    """As the kernel estimates it."""
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) // 1024
    except (OSError, KeyError, ValueError):
        return None


def check_clock() -> Iterator[Finding]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if time.time() < _YEAR_2024_S:
        yield failure("clock", f"it is {now} by this machine's clock", "set it: messages are stored under its time")
    elif _is_unsynchronised():
        cure = "run chrony or systemd-timesyncd here, unless the host does that for this machine"
        yield warning("clock", f"{now}; the kernel says that nobody synchronises it", cure)
    else:
        yield ok("clock", now)


def _is_unsynchronised() -> bool:
    """Asked by adjtimex with nothing to adjust. Without that call nothing is known to be wrong."""
    try:
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))) == _TIME_ERROR
    except (AttributeError, OSError):
        return False
