"""Checks of this machine (Python, packages, Java, limits, memory, clock), of a settings file, and of a store."""

import ctypes
import errno
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ariane.broker.settings import BrokerSettings
from ariane.cli.config.load import load_broker_settings
from ariane.cli.doctor.findings import Finding, failure, ok, warning
from ariane.errors import ListenFailed, SettingsError
from ariane.settings import LoadedSettings
from ariane.store.checkpoint import LastExit, boot_id, last_exit, read_checkpoint
from ariane.store.commit_log.scan import list_files
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.lock import lock_holder
from ariane.store.offline.verify import check_config
from ariane.store.offline.verify_report import Report, check_file_sequence, check_names
from ariane.store.settings import StoreSettings
from ariane.transport.reserved_ports import reserved_ports

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
_TIME_ERROR = 5  # adjtimex: the clock is not synchronised
_TIMEX_BYTES = 512  # more than any platform's struct timex


def check_python() -> Iterator[Finding]:
    version = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info[:2] < PYTHON_MIN:
        yield failure("python", version, "install Python 3.11 or later")
    elif platform.system() != "Linux":
        yield warning("python", version, "run brokers on Linux: the store relies on its file system calls")
    else:
        yield ok("python", version)


def check_extras() -> Iterator[Finding]:
    missing = {extra for extra, modules in EXTRAS.items() if any(find_spec(module) is None for module in modules)}
    installed = ", ".join(extra for extra in EXTRAS if extra not in missing) or "none"
    hint = "".join(f"; {extra} is not: pip install 'ariane[{extra}]'" for extra in EXTRAS if extra in missing)
    yield ok("extras", f"installed: {installed}{hint}")


def check_java() -> Iterator[Finding]:
    """Only Spark needs it."""
    from ariane.spark.spark_session import find_java

    if find_spec("pyspark") is None:
        yield ok("java", "not needed: pyspark is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="ariane-doctor-") as shim:
        try:
            java = find_java(os.environ, Path(shim))
        except SettingsError as error:
            cause, _, hint = str(error).partition(": ")
            yield warning("java", cause, hint or "install Java 17 or later")
            return
    yield ok("java", f"Java {java.version} for Spark, from {java.origin}")


def check_open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_MIN:
        yield ok("open files", f"a process may open {_limit(soft)} files")
        return
    hint = f"run ulimit -n {_limit(hard)} before starting a broker, or set LimitNOFILE= in its systemd unit"
    yield warning("open files", f"a process may open only {soft} files; each connection and queue needs some", hint)


def _limit(number: int) -> str:
    return "unlimited" if number == resource.RLIM_INFINITY else str(number)


def check_memory() -> Iterator[Finding]:
    available = _available_mb()
    if available is None:
        yield warning("memory", "the available memory is unknown", "make sure that 256 MB are available")
    elif available < MEMORY_MIN_MB:
        hint = "stop other programs or add memory: a broker needs about 100 MB, and more to cache messages"
        yield warning("memory", f"only {available} MB are available", hint)
    else:
        yield ok("memory", f"{available:,} MB are available")


def _available_mb() -> int | None:
    """The kernel's estimate."""
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) // 1024
    except (OSError, KeyError, ValueError):
        return None


def check_clock() -> Iterator[Finding]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if time.time() < _YEAR_2024_S:
        yield failure("clock", f"this machine's clock shows {now}", "set the clock: messages are stored with its time")
    elif _is_unsynchronised():
        hint = "run chrony or systemd-timesyncd, unless the host synchronises the clock of this machine"
        yield warning("clock", f"{now}; the clock is not synchronised", hint)
    else:
        yield ok("clock", now)


def _is_unsynchronised() -> bool:
    """Calls adjtimex without changing anything. False where that call does not exist."""
    try:
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))) == _TIME_ERROR
    except (AttributeError, OSError):
        return False


# --- settings file and ports of a broker ---


def load_config(file: Path) -> tuple[list[Finding], LoadedSettings[BrokerSettings] | None]:
    """Checks the file. Also returns the settings, if a broker would start with them."""
    try:
        loaded = load_broker_settings(file, os.environ, {})
    except SettingsError as error:
        return [failure("settings", str(error), "correct the file; docs/settings.md lists all settings")], None
    warnings = [warning("settings", text, "remove the key, or see docs/settings.md") for text in loaded.warnings]
    return warnings or [ok("settings", f"{file}: all keys are known and in range")], loaded


def check_ports(settings: BrokerSettings, *, runs: bool) -> Iterator[Finding]:
    """`runs`: a broker runs on the store of these settings, so its ports must be in use."""
    where = f"{settings.host}:{settings.port}"
    try:
        with reserved_ports(settings.ports):
            pass
    except ListenFailed as error:
        if runs:
            yield ok("ports", f"{where} is in use by the running broker")
        else:
            yield failure("ports", str(error), "stop the program that listens there, or change listenPort")
        return
    if runs:
        hint = "see its log: it may have been started with another port"
        yield warning("ports", f"a broker runs on the store, but no program listens at {where}", hint)
    else:
        yield ok("ports", f"{where} and the VIP port {settings.port - 2} are free")


# --- store directory ---

_MOUNTS = Path("/proc/self/mounts")
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre"})
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_PROBE_BYTES = 1024 * 1024
_CLOCK_SLACK_MS = 5_000


class StoreChecks:
    """Disk, file system, last shutdown and files of a store.

    Does not write to the store's files. Creates a temporary file of 1 MiB in its directory, to test the file system.
    """

    def __init__(self, root: Path, settings: StoreSettings | None = None) -> None:
        self._layout = Layout.under(root, settings.commit_log_path if settings is not None else None)
        self._settings = settings or StoreSettings(root=root)
        self._disk = RealDisk()

    @property
    def runs(self) -> bool:
        return lock_holder(self._layout.lock) is not None

    def space(self) -> Iterator[Finding]:
        directory = _existing(self._layout.commit_log)
        usage, settings = shutil.disk_usage(directory), self._settings
        used = usage.used / usage.total
        figures = f"{used:.0%} of the disk of {directory} is used, {usage.free / 2**30:,.1f} GiB are free"
        if used >= settings.refuse_writes_ratio:
            limit = f"{settings.refuse_writes_ratio:.0%}"
            hint = f"free space or move the store: above {limit} a broker refuses messages"
            yield failure("disk space", figures, hint)
        elif used >= settings.disk_max_used_ratio:
            limit = f"{settings.disk_max_used_ratio:.0%}"
            hint = f"free space or shorten the retention: above {limit} a broker deletes old files early"
            yield warning("disk space", figures, hint)
        else:
            yield ok("disk space", figures)

    def file_system(self) -> Iterator[Finding]:
        directory = _existing(self._layout.root)
        kind = file_system_of(directory)
        location = f"{directory} is on {kind or 'an unknown file system'}"
        if not os.access(directory, os.W_OK):
            yield failure("file system", f"{location}; no write permission", "change its owner, or the user")
        elif kind in _REMOTE:
            yield warning(
                "file system", f"{location}, over a network", "use a local disk: locks and syncs differ there"
            )
        elif kind in _IN_MEMORY:
            yield warning("file system", f"{location}, in memory", "use a disk: a reboot deletes all messages")
        elif not reserves_space(directory):
            hint = "use ext4, XFS or btrfs: here every new file is written twice, and a full disk is detected late"
            yield warning("file system", f"{location}, which cannot reserve space (fallocate)", hint)
        else:
            yield ok("file system", f"{location}, which reserves space (fallocate)")

    def last_run(self) -> Iterator[Finding]:
        holder = lock_holder(self._layout.lock)
        ended = last_exit(self._disk, self._layout.abort, boot_id())
        if holder is not None:
            yield ok("last run", f"process {holder} runs on {self._layout.root}")
        elif ended is LastExit.CLEAN:
            yield ok("last run", "no broker runs on it, and the last one stopped cleanly")
        else:
            yield warning(
                "last run",
                f"the file `abort` exists: the last run ended in a {ended.value}",
                "start the broker: its recovery ends the log at the last complete record",
            )

    def times(self) -> Iterator[Finding]:
        """If the clock was set back, new messages appear older than stored ones."""
        newest_ms = read_checkpoint(self._disk, self._layout.checkpoint).physic_timestamp_ms
        ahead_ms = newest_ms - time.time_ns() // 1_000_000
        if ahead_ms > _CLOCK_SLACK_MS:
            hint = "correct the clock before starting the broker: searches by time depend on it"
            yield failure("store times", f"the newest message is {ahead_ms // 1000} s in the future", hint)
        else:
            yield ok("store times", "no message has a store time in the future")

    def files(self) -> Iterator[Finding]:
        """Names, sizes and small tables; `ariane store verify` reads everything."""
        if not self._layout.commit_log.is_dir():
            yield ok("store files", f"there is no store in {self._layout.root} yet: a broker will create it")
            return
        files = list_files(self._disk, self._layout.commit_log)
        report = Report(self._layout.root, is_unclean=self._disk.size(self._layout.abort) is not None)
        check_file_sequence(report, files)
        check_names(report, self._disk, self._layout.commit_log, files)
        check_config(report, self._disk, self._layout.config)
        for fault in report.faults:
            yield failure("store files", f"{fault.file}, byte {fault.position}: {fault.what}", fault.cure)
        for note in report.notes:
            yield warning("store files", note, "check that this is intended; `ariane store verify` reports details")
        if not report.faults and not report.notes:
            yield ok(
                "store files",
                f"{len(files)} commit log files, no problem found (`ariane store verify` checks their contents)",
            )


def _existing(path: Path) -> Path:
    """The directory itself, or its nearest parent that exists."""
    while not path.exists():
        path = path.parent
    return path.resolve()


def file_system_of(directory: Path) -> str | None:
    """The file system type of the mount that contains the directory."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return None
    mounts = [line.split()[1:3] for line in lines if len(line.split()) > 2]
    above = [(point, kind) for point, kind in mounts if directory.is_relative_to(point.replace("\\040", " "))]
    return max(above, key=lambda mount: len(mount[0]))[1] if above else None


def reserves_space(directory: Path) -> bool:
    """Calls the kernel's fallocate: the C library's posix_fallocate writes zeros if the file system lacks support."""
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except AttributeError:
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    with tempfile.TemporaryFile(dir=directory, prefix=".ariane-doctor-") as file:
        if fallocate(file.fileno(), 0, 0, _PROBE_BYTES) == 0:
            return True
        number = ctypes.get_errno()
    if number in (errno.EOPNOTSUPP, errno.ENOSYS):
        return False
    raise OSError(number, f"cannot reserve space in {directory}: {os.strerror(number)}")
