"""Where a broker of Ariane spends its time under load: py-spy samples it from outside, which slows it by little.

py-spy is no dependency of this project: `pipx install py-spy`, or put it on the PATH in another way. The same by hand,
while `python -m bench.compare --only java-sends` measures:

    py-spy record --pid PID --duration 10 --rate 200 --output profile.svg
    py-spy dump --pid PID
"""

import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

RATE = 200
SHOWN = 25
WAITING = ("_worker (concurrent/futures/thread.py)", "Condition.wait (threading.py)", "wait (threading.py)")
"""Threads without work, which py-spy does not always recognise as idle."""


class NoProfiler(Exception):
    """py-spy is not on the PATH."""


def profiler() -> str:
    found = shutil.which("py-spy")
    if found is None:
        raise NoProfiler("py-spy is not on the PATH: install it with `pipx install py-spy`, or leave out --profile")
    return found


@contextmanager
def profiled(pid: int, title: str) -> Iterator[None]:
    """Samples the process during the block, and prints the functions in which it was."""
    with tempfile.TemporaryDirectory() as directory:
        stacks = Path(directory) / "stacks"
        words = ["--rate", str(RATE), "--format", "raw", "--nolineno", "--output", str(stacks)]
        recorder = subprocess.Popen(
            [profiler(), "record", "--pid", str(pid), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield
        finally:
            recorder.send_signal(signal.SIGINT)  # it writes what it has
            output, _ = recorder.communicate()
        if not stacks.exists():
            raise RuntimeError(f"py-spy recorded nothing: {output.strip()[-300:]}")
        print(f"\n{title}: share of the samples, in the function itself and with what it calls")
        print("\n".join(shares(stacks.read_text().splitlines())))


def shares(stacks: Iterable[str]) -> Iterator[str]:
    """From lines such as `main (a.py);run (b.py) 17`: the functions that were seen most often."""
    itself: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for line in stacks:
        path, _, count = line.rpartition(" ")
        functions = path.split(";")
        if functions[-1] in WAITING:
            continue
        itself[functions[-1]] += int(count)
        for function in set(functions):
            within[function] += int(count)
    samples = max(sum(itself.values()), 1)
    for function, seen in itself.most_common(SHOWN):
        yield f"{seen / samples:7.1%} {within[function] / samples:7.1%}  {function}"
