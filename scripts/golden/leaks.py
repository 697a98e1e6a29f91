"""A check that golden frames, which are published, reveal nothing about the machine that recorded them."""

import getpass
import ipaddress
import re
import socket
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

# Loopback, unset, and the networks reserved for documentation (RFC 5737).
HARMLESS = re.compile(r"^(127\.|0\.0\.0\.0$|192\.0\.2\.|198\.51\.100\.|203\.0\.113\.)")
# A message's unique key is the sender's address in hex, 4 bytes or 16, and 12 bytes more: the separator before it is
# escaped in JSON headers.
UNIQUE_KEY = re.compile(r"UNIQ_KEY(?:\x01|\\u0001)([0-9A-F]{32}(?:[0-9A-F]{24})?)(?![0-9A-F])")
UNIQUE_KEY_SUFFIX_DIGITS = 24
DOTTED = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")


def find_leaks(frames: Iterable[bytes]) -> set[str]:
    """Return addresses, host names and home directories found in the frames or in their compressed bodies."""
    names = _private_names()
    leaks: set[str] = set()
    for frame in frames:
        for content in _readings(frame):
            text = content.decode("latin-1")
            leaks |= {name for name in names if name in text}
            addresses = [*DOTTED.findall(text), *(_sender(key) for key in UNIQUE_KEY.findall(text))]
            leaks |= {address for address in addresses if not HARMLESS.match(address)}
    return leaks


def _sender(unique_key: str) -> str:
    return str(ipaddress.ip_address(bytes.fromhex(unique_key[:-UNIQUE_KEY_SUFFIX_DIGITS])))


def _private_names() -> set[str]:
    project = Path(__file__).resolve().parents[2]
    names = {str(Path.home()), str(project), str(project.parent), socket.gethostname(), f"/{getpass.getuser()}/"}
    # A name of two letters, like a short host name, occurs in random bytes.
    return {name for name in names if len(name) > 3}


def _readings(frame: bytes) -> Iterator[bytes]:
    """The frame itself and whatever in it can be inflated."""
    yield frame
    for start in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", frame):
        try:
            yield zlib.decompressobj().decompress(frame[start.start() :])
        except zlib.error:
            continue
