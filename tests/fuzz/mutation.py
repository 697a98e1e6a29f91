"""Random mutations of real bytes: a fuzzer without coverage feedback works best from valid input.

ARIANE_FUZZ_SECONDS is the time for each target (`make fuzz` gives more), ARIANE_FUZZ_SEED the start of the sequence. A
failure prints the seed and the number of the mutant, so it can be run again.
"""

import os
import random
import time
from collections.abc import Callable, Sequence

from ariane.errors import WireError

SECONDS = float(os.environ.get("ARIANE_FUZZ_SECONDS", "2"))
SEED = int(os.environ.get("ARIANE_FUZZ_SEED", "20261115"))
MUTANTS_MIN = 200  # even on a machine that is too busy to do more in the time

INTERESTING = [
    b"", b"\0", b"\x01", b"\x02", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0",
    b"{", b"}", b"[", b"]", b'"', b"'", b",", b":", b"null", b"true", b"-1", b"1e999", b"9" * 400, b"\\u0000",
    b"\\ud800", b'{"$ref":"$"}', b'{"$ref":"$.a"}', b"{" * 64, b"[" * 64, b"\xf0\x9f\x98\x80", b"%RETRY%", b"\0" * 64,
]  # fmt: skip


def mutant(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        rng.choice(_MUTATIONS)(rng, data, corpus)
    return bytes(data)


def _flip(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _replace(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    piece = rng.choice(INTERESTING)
    data[at : at + rng.choice((0, len(piece)))] = piece


def _cut(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    a, b = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    del data[a:b]


def _truncate(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    del data[rng.randint(0, len(data)) :]


def _splice(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    other = rng.choice(corpus)
    a, b = sorted((rng.randint(0, len(other)), rng.randint(0, len(other))))
    data[rng.randint(0, len(data)) :] = other[a:b]


def _number(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    """A 32-bit length somewhere that lies by a little or by a lot."""
    if len(data) >= 4:
        at = rng.randrange(len(data) - 3)
        data[at : at + 4] = rng.choice((0, 1, 3, 4, 5, len(data), len(data) - 4, 2**31 - 1, 2**32 - 1)).to_bytes(
            4, "big"
        )


_MUTATIONS = [_flip, _flip, _replace, _cut, _truncate, _splice, _number]


def survives(target: Callable[[bytes], object], corpus: Sequence[bytes]) -> int:
    """Feeds mutants to `target` until the time is up; anything but a WireError fails the test."""
    assert corpus
    rng = random.Random(SEED)
    deadline, count = time.monotonic() + SECONDS, 0
    while count < MUTANTS_MIN or time.monotonic() < deadline:
        data = mutant(rng, corpus)
        try:
            target(data)
        except WireError:
            pass
        except BaseException as error:
            raise AssertionError(
                f"mutant {count} of seed {SEED} raised {error!r}; input, {len(data)} bytes: {data[:2000].hex()}"
            ) from error
        count += 1
    return count
