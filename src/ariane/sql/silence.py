"""Java's own words at its start, which nobody asked for: kept from the terminal, and shown if it does not start."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_STDERR = 2
_TOLD_BYTES = 4000


@contextmanager
def java_silenced() -> Iterator[None]:
    """What is started inside writes its stderr to a file, for as long as it lives. Ours is restored."""
    with tempfile.TemporaryFile() as file:
        ours = os.dup(_STDERR)
        os.dup2(file.fileno(), _STDERR)
        try:
            yield
        except Exception:
            os.write(ours, _last_words(file.fileno()))
            raise
        finally:
            sys.stderr.flush()
            os.dup2(ours, _STDERR)
            os.close(ours)


def _last_words(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _TOLD_BYTES, max(0, size - _TOLD_BYTES))
