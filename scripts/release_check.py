"""Builds sdist and wheel, installs the wheel in an empty environment, and runs the README's snippets with it.

    python scripts/release_check.py            needs a package index; takes minutes, most of them to install Spark

What a user of the wheel would meet first is done as the README says: `ariane up --tmp` is started on free ports, then
each Python block and each `sh` block runs with the installed programs, in a directory outside of the clone.
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = "127.0.0.1:9876"
EXTRAS = "spark,sql"
_TIMEOUT_S = 180
_INSTALL_S = 1800


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ariane-release-") as name:
        directory = Path(name)
        wheel = build(directory / "dist")
        programs = install(wheel, directory / "environment")
        check_version(wheel, programs)
        work = directory / "work"
        work.mkdir()
        with running_up(programs, work) as address:
            run_snippets(programs, work, address)
    print(f"{wheel.name}: built, installed, started, and the README's snippets ran")
    return 0


def build(dist: Path) -> Path:
    step("build sdist and wheel")
    run(sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT))
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    print(f"  {sdist.name}: {sdist.stat().st_size:,} bytes, {wheel.name}: {wheel.stat().st_size:,} bytes")
    return wheel


def install(wheel: Path, environment: Path) -> Path:
    """The directory of the installed programs."""
    step(f"install {wheel.name}[{EXTRAS}] in an empty environment")
    venv.create(environment, with_pip=True)
    programs = environment / "bin"
    run(str(programs / "python"), "-m", "pip", "install", "--quiet", f"{wheel}[{EXTRAS}]")
    return programs


def check_version(wheel: Path, programs: Path) -> None:
    printed = subprocess.run([programs / "ariane", "--version"], check=True, capture_output=True, text=True).stdout
    version = wheel.name.split("-")[1]
    if version not in printed:
        raise SystemExit(f"`ariane --version` prints {printed!r}, but the wheel is {version}")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"## {version} " not in changelog:
        raise SystemExit(f"CHANGELOG.md has no section for {version}: give the Unreleased section version and date")


@contextmanager
def running_up(programs: Path, work: Path) -> Iterator[str]:
    """The nameserver's address, while `ariane up --tmp` runs."""
    step("ariane up --tmp")
    command = [str(programs / "ariane"), "up", "--tmp", "--port", "0", "--broker-port", "0"]
    with subprocess.Popen(command, cwd=work, env=environment(programs), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            match = re.search(r"127\.0\.0\.1:\d+", line)
            if match is None:
                raise SystemExit(f"`ariane up --tmp` printed no address: {line!r}")
            print(f"  {line.strip()}")
            yield match[0]
        finally:
            process.terminate()
            process.stdout.read()
            process.wait(_TIMEOUT_S)


def run_snippets(programs: Path, work: Path, address: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(python|sh)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        step(f"{kind} block: {block.strip().splitlines()[0]}")
        command = [str(programs / "python"), "-c"] if kind == "python" else ["/bin/sh", "-e", "-c"]
        run(*command, block.replace(ADDRESS, address), cwd=work, env=environment(programs) | {"NAMESRV_ADDR": address})


def environment(programs: Path) -> dict[str, str]:
    """Without what would let a program find the clone in place of the wheel."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def step(text: str) -> None:
    print(f"- {text}", flush=True)


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, timeout=_INSTALL_S, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"exit status {done.returncode}: {' '.join(command)[:200]}\n{done.stdout}\n{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
