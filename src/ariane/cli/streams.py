"""stdin, stdout and stderr as commands rely on them, however the process was started.

A program may be started with some of them closed, as by `ariane broker >&-` or a careless supervisor. Python has None
in their places then, and the next file or socket gets their numbers: what anybody prints would go into a commit log.
"""

import codecs
import os
import sys
from io import TextIOWrapper


def prepare_streams() -> None:
    """Call it before any file is opened."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in this order each gets its own number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            _make_patient(stream)


def _make_patient(stream: TextIOWrapper) -> None:
    """A name or a body that the encoding does not have is no reason to fail; ASCII only means that none was chosen."""
    is_ascii = codecs.lookup(stream.encoding).name == "ascii"
    stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")
