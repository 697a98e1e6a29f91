"""Grouped bar charts as SVG, without a library."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#c0392b", "#e59866", "#2e86c1", "#7f8c8d", "#27ae60", "#8e44ad")
WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 10, 58, 30
TICKS = 4


@dataclass(frozen=True, slots=True)
class Bars:
    """`series` has a value for each group, or None where nothing was measured."""

    title: str
    unit: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[float | None]]


def bar_chart(bars: Bars) -> str:
    top = _round_up(max((value for values in bars.series.values() for value in values if value), default=1.0))
    body = [*_frame(bars), *_axis(top, bars.unit), *_legend(list(bars.series)), *_groups(bars, top)]
    return "\n".join((_open(bars.title), *body, "</svg>\n"))


def _open(title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title)}">'
    )


def _frame(bars: Bars) -> Iterator[str]:
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield _text(LEFT, 20, bars.title, size=14)


def _axis(top: float, unit: str) -> Iterator[str]:
    for tick in range(TICKS + 1):
        value = top * tick / TICKS
        y = _y(value, top)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield _text(LEFT - 6, y + 4, f"{value:,.4g}" if value < 1000 else f"{value:,.0f}", anchor="end")
    yield _text(2, TOP - 10, unit)  # from the left edge: a wide font would leave the picture


def _legend(names: Sequence[str]) -> Iterator[str]:
    x = float(LEFT)
    for number, name in enumerate(names):
        yield f'<rect x="{x:.1f}" y="30" width="10" height="10" fill="{_colour(number)}"/>'
        yield _text(x + 14, 39, name)
        x += 30 + 7 * len(name)


def _groups(bars: Bars, top: float) -> Iterator[str]:
    slot = (WIDTH - LEFT - RIGHT) / max(len(bars.groups), 1)
    width = slot * 0.8 / max(len(bars.series), 1)
    for index, group in enumerate(bars.groups):
        x = LEFT + index * slot + slot * 0.1
        yield _text(x + slot * 0.4, HEIGHT - BOTTOM + 18, group, anchor="middle")
        for number, (name, values) in enumerate(bars.series.items()):
            value = values[index]
            if value is not None:
                yield _bar(x + number * width, width, value, top, f"{name}, {group}: {value:,.4g}", _colour(number))


def _bar(x: float, width: float, value: float, top: float, label: str, colour: str) -> str:
    y = _y(value, top)
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{width * 0.94:.1f}" height="{HEIGHT - BOTTOM - y:.1f}"'
    return f'<rect {shape} fill="{colour}"><title>{escape(label)}</title></rect>'


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    position = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {position} fill="#333333">{escape(text)}</text>'


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _round_up(value: float) -> float:
    """To 1, 2, 4, 5 or 8 times a power of ten, so that four ticks are round numbers."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)
