"""Types of options that several commands share: addresses, NAME=VALUE pairs, queues, times."""

import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ariane.errors import ArianeError, ClientError
from ariane.model.address import Address

if TYPE_CHECKING:
    from ariane.model.route import MessageQueue


def listen_address(context: click.Context, parameter: click.Parameter, text: str | None) -> Address | None:
    """`HOST:PORT`, `[::1]:PORT`, or `:PORT`: an empty host, so that only the port changes."""
    try:
        return None if text is None else Address.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def name_value_pairs(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE", context, parameter)
        pairs[name] = value
    return pairs


def queue_named(name: str, queues: "Iterable[MessageQueue]", error: type[ArianeError] = ClientError) -> "MessageQueue":
    """The queue with the name `[BROKER:]ID`."""
    existing = list(queues)
    broker, _, queue_id = name.rpartition(":")
    matches = [queue for queue in existing if str(queue.queue_id) == queue_id and broker in ("", queue.broker_name)]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in matches or existing)
    problem = "exists on several brokers" if matches else "does not exist"
    raise error(f"queue {name} {problem}: choose one of {names}")


# --- times: `2026-03-01T09:30`, `-15m`, `+10s`, `now`, milliseconds since 1970 ---

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DISTANCE = re.compile(r"([+-])(\d{1,9})(ms|[smhd])")
_MILLISECONDS = re.compile(r"\d{12,14}")
TIME_FORMATS = "2026-03-01T09:30 (local time unless a zone is given), -15m, +10s, now, or milliseconds since 1970"

Callback = Callable[[click.Context, click.Parameter, str | None], int | str | None]


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970. ValueError, which lists the accepted formats, for anything else."""
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
        raise ValueError(f"{text!r} is not a time: use {TIME_FORMATS}") from None


def time_or(*words: str) -> Callback:
    """Callback of an option: a time, or one of the option's own words such as `earliest`, which is kept as it is."""

    def read(context: click.Context, parameter: click.Parameter, text: str | None) -> int | str | None:
        if text is None or text in words:
            return text
        try:
            return parse_time(text, time.time_ns() // 1_000_000)
        except ValueError as error:
            hint = f"; or one of {', '.join(words)}" if words else ""
            raise click.BadParameter(f"{error}{hint}", context, parameter) from None

    return read
