"""Which Python to run a broker on: the same benches on several interpreters, in one table.

    python -m bench.interpreters [PYTHON ...] [--rounds 3] [--seconds 2]

PYTHON is the path of an interpreter; without one, those of python3.11 to python3.14 that are on the PATH. Each gets a
virtual environment in the cache (~/.cache/ariane) with this checkout in it.

"in process" is CPU of a broker without sockets (bench.send_path, bench.pull_path, bench.transaction_path), the best of
the rounds; "sockets" a broker with async flush under the load generator, 1 KiB, 16 connections with 16 requests in
flight each, medians of the rounds. The interpreters take turns; the generator always runs on the Python of this
command. How an interpreter was built (profile-guided optimisation, LTO) matters as much as its version.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.contestant import enter, in_turn, turn
from bench.load.plan import Kind
from bench.scenarios.loads import load
from bench.systems.ariane import Ariane
from bench.systems.system import Setup
from interop.processes import InteropError, cache_directory

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("python3.11", "python3.12", "python3.13", "python3.14")
IN_PROCESS = {
    "send": "bench.send_path",
    "binary send": "bench.send_path --binary",
    "batch of 16": "bench.send_path --binary --batch 16 --body 128 --chunk 4",
    "pull of 32": "bench.pull_path",
    "transaction": "bench.transaction_path",
}
"""CPU microseconds: of a message, of a message of a batch, of a pull, of a half message and its commit."""
_FIGURE = re.compile(r"^(?:(\w+) +)?([\d.]+) us ", re.MULTILINE)
_PARTS_OF_A_TRANSACTION = ("half", "commit")
_DESCRIBE = "import json, sys; print(json.dumps([sys.executable, sys.version.split()[0]]))"
WARM_S = 1.0


@dataclass(slots=True)
class Interpreter:
    path: str
    version: str
    in_process_us: dict[str, float] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)
    rss_mb: float = 0.0


def described(path: str) -> Interpreter:
    done = subprocess.run([path, "-c", _DESCRIBE], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InteropError(f"{path} does not run: {done.stderr.strip()[-300:]}")
    return Interpreter(*json.loads(done.stdout))


def found(paths: Sequence[str]) -> list[Interpreter]:
    """Those that were named, or those on the PATH; each version once."""
    interpreters: dict[str, Interpreter] = {}
    for path in paths or list(on_path()):
        try:
            interpreter = described(path)
        except InteropError:
            if paths:
                raise
            continue  # leads nowhere, as a shim of pyenv for a version that is not selected
        interpreters.setdefault(interpreter.version, interpreter)
    return list(interpreters.values())


def on_path() -> Iterator[str]:
    for name in NAMES:
        for directory in os.environ.get("PATH", "").split(os.pathsep):
            if os.access(Path(directory) / name, os.X_OK):
                yield str(Path(directory) / name)


def environment_of(interpreter: Interpreter) -> str:
    """The Python of a virtual environment with this checkout, which is kept until pyproject.toml changes."""
    directory = cache_directory() / f"python-{interpreter.version}"
    python, stamp = directory / "bin" / "python", directory / "installed"
    project = f"{interpreter.path}\n{ROOT}\n{(ROOT / 'pyproject.toml').read_text()}"
    if not stamp.exists() or stamp.read_text() != project:
        _run([interpreter.path, "-m", "venv", "--clear", str(directory)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--editable", str(ROOT)])
        stamp.write_text(project)
    return str(python)


def measure_in_process(interpreter: Interpreter, python: str) -> None:
    """The best of what was seen so far."""
    for name, words in IN_PROCESS.items():
        us = figure(_run([python, "-m", *words.split()]))
        interpreter.in_process_us[name] = min(us, interpreter.in_process_us.get(name, us))


def figure(printed: str) -> float:
    """The microseconds that a bench printed: the only figure, or those of the parts of a transaction."""
    figures = {name: float(us) for name, us in _FIGURE.findall(printed)}
    return sum(figures.get(part, 0.0) for part in _PARTS_OF_A_TRANSACTION) or next(iter(figures.values()))


def _run(command: Sequence[str]) -> str:
    """Without PYTHONPATH, which could lead to the packages of another interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InteropError(f"{' '.join(command)[:200]} failed:\n{done.stderr[-1000:]}")
    return done.stdout


def measure_sockets(interpreters: Sequence[Interpreter], pythons: Sequence[str], rounds: int, seconds: float) -> None:
    with ExitStack() as stack:
        brokers = []
        for python in pythons:
            brokers.append(enter(Ariane(python=python), "", Setup()))
            stack.callback(brokers[-1].close)
            brokers[-1].stop()
        pairs = list(zip(interpreters, brokers, strict=True))
        for number in range(rounds):
            for interpreter, broker in in_turn(pairs, number):
                with turn(broker):
                    shape = {"connections": 16, "in_flight": 16, "body_bytes": 1024}
                    result = load(broker.running, Kind.SEND, **shape, warm_s=WARM_S, seconds=seconds)
                    interpreter.rates.append(result.messages_per_s)
                    interpreter.server_us.append(result.server_us)
                    interpreter.rss_mb = broker.running.rss_bytes() / 1e6


def lines(interpreters: Sequence[Interpreter]) -> Iterator[str]:
    """The ratios are to the first one."""
    names = list(IN_PROCESS)
    yield f"{'':<10}{'in process, CPU us':<{sum(len(name) + 3 for name in names) + 5}}sockets"
    heading = "".join(f"{name:>{len(name) + 3}}" for name in names)
    yield f"{'Python':<10}{heading}{'sends/s':>12}{'CPU us':>9}{'x CPU':>8}{'RSS MB':>9}  path"
    first_us = statistics.median(interpreters[0].server_us)
    for each in interpreters:
        cells = "".join(f"{each.in_process_us[name]:>{len(name) + 3}.2f}" for name in names)
        rate, us = statistics.median(each.rates), statistics.median(each.server_us)
        sockets = f"{rate:>12,.0f}{us:>9.1f}{us / first_us:>8.2f}{each.rss_mb:>9.0f}"
        yield f"{each.version:<10}{cells}{sockets}  {each.path}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement with sockets")
    args = parser.parse_args()
    interpreters = found(args.pythons)
    if not interpreters:
        sys.exit(f"none of {', '.join(NAMES)} is on the PATH: name the paths of some")
    pythons = [environment_of(interpreter) for interpreter in interpreters]
    for number in range(args.rounds):
        for interpreter, python in in_turn(list(zip(interpreters, pythons, strict=True)), number):
            measure_in_process(interpreter, python)
    measure_sockets(interpreters, pythons, args.rounds, args.seconds)
    print("\n".join(lines(interpreters)))


if __name__ == "__main__":
    main()
