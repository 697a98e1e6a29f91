"""Arguments that several commands take."""

import re
import time
from collections.abc import Callable
from datetime import datetime

import click

from ariane.model.address import Address


def listen_address(context: click.Context, parameter: click.Parameter, text: str | None) -> Address | None:
    """`HOST:PORT`, `[::1]:PORT`, or `:PORT`, which has an empty host and changes only the port."""
    try:
        return None if text is None else Address.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def name_value_pairs(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is no NAME=VALUE", context, parameter)
        pairs[name] = value
    return pairs


# --- tail_moments ---
#
# Moments as people type them: `2026-03-01T09:30`, `-15m`, `+10s`, `now`, milliseconds since 1970.

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DISTANCE = re.compile(r"([+-])(\d{1,9})(ms|[smhd])")
_MILLISECONDS = re.compile(r"\d{12,14}")
FORMS = "2026-03-01T09:30 (local time unless it names a zone), -15m, +10s, now, or milliseconds since 1970"

Callback = Callable[[click.Context, click.Parameter, str | None], int | str | None]


def parse_moment(text: str, now_ms: int) -> int:
    """Milliseconds since 1970. ValueError, with the forms that are known, when it is none of them."""
    if text == "now":
        return now_ms
    if distance := _DISTANCE.fullmatch(text):
        sign, number, unit = distance.groups()
        return now_ms + int(f"{sign}{number}") * _UNITS_MS[unit]
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time: write {FORMS}") from None


def moment_or(*words: str) -> Callback:
    """An option's callback: a moment, or one of the option's own words such as `earliest`, which stays as it is."""

    def read(context: click.Context, parameter: click.Parameter, text: str | None) -> int | str | None:
        if text is None or text in words:
            return text
        try:
            return parse_moment(text, time.time_ns() // 1_000_000)
        except ValueError as error:
            hint = f", or one of {', '.join(words)}" if words else ""
            raise click.BadParameter(f"{error}{hint}", context, parameter) from None

    return read
