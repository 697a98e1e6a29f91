"""Delay levels: `1s 5s 10s ...`, counted from 1."""

from ariane.errors import SettingsError

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_levels(text: str) -> tuple[int, ...]:
    """The delay of each level in ms, level 1 first."""
    try:
        levels = tuple(int(word[:-1]) * _UNITS_MS[word[-1]] for word in text.split())
    except (KeyError, ValueError, IndexError):
        raise SettingsError(f"messageDelayLevel: words like 1s, 5m or 2h expected, got {text!r}") from None
    if not levels:
        raise SettingsError("messageDelayLevel names no level")
    return levels


def delivery_time_ms(levels: tuple[int, ...], level: int, stored_ms: int) -> int:
    """When a message of this level is due. Levels beyond the table are one second, as in Apache's recovery."""
    return stored_ms + (levels[level - 1] if 0 < level <= len(levels) else 1_000)
