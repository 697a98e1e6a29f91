"""A home for Spark in which its Python half is not packed.

Spark starts each of its Python processes with its own `pyspark.zip` in front of the path, since on a cluster nobody may
have installed pyspark. The zip has no compiled modules, so each process compiles what it imports anew. The first read
of a session has four kinds of them, one waiting for the other: more than two seconds before its first row.

On one machine, where the Python that runs this runs them too, they can import the pyspark that is installed. Python
passes over a path that is not there; so Spark is given a home with its programs and JARs, and without the zip.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pyspark

_LINKED = ("bin", "conf", "jars", "sbin")
_CHOSEN_BY_USER = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")


@contextmanager
def unpacked_home(environment: Mapping[str, str], master: str | None) -> Iterator[None]:
    """While a session starts: the JVM keeps what it was started with, and nobody else shall see it."""
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
    """None where nothing can be kept: then Spark starts as it does without us."""
    installed = Path(pyspark.__file__).parent
    try:
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "ariane" / f"spark-{crc32(str(installed).encode()):08x}"
        home.mkdir(parents=True, exist_ok=True)
        for name in _LINKED:
            if (installed / name).exists():
                _link(home / name, installed / name)
    except (OSError, RuntimeError):  # a home that is not there, or not writable
        return None
    return home


def _link(link: Path, target: Path) -> None:
    if not link.is_symlink() or link.readlink() != target:
        fresh = link.with_name(f"{link.name}-{os.getpid()}")
        fresh.symlink_to(target)
        fresh.replace(link)  # whole or not at all: another session may be starting from it


def _is_one_machine(environment: Mapping[str, str], master: str | None) -> bool:
    """Executors in this process, and workers that find pyspark where it was found: among the installed packages."""
    is_local = master is None or master == "local" or master.startswith("local[")
    is_ours = environment.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    packages = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    installed = Path(pyspark.__file__).resolve().parent
    return (
        is_local
        and is_ours
        and installed.parent in packages
        and not any(environment.get(name) for name in _CHOSEN_BY_USER)
        and not (installed / "conf" / "spark-defaults.conf").exists()  # which may name another master
    )
