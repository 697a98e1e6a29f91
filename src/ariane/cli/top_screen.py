"""The screen of `ariane top`: three tables, cut to the height of the terminal, and what is cut is said."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ariane.cli.render import Row
from ariane.cli.top_figures import Reading, broker_figures, group_figures, topic_figures

_FRAME_LINES = 9
"""Title, footer, and for each table its heading and the empty line below."""


def screen(now: Reading, before: Reading | None, *, where: str, clock: str, height: int) -> RenderableType:
    brokers, topics, groups = broker_figures(now), topic_figures(now, before), group_figures(now, before)
    room = max(height - _FRAME_LINES - len(brokers), 4)
    for_groups = min(len(groups), room // 2)
    for_topics = room - for_groups
    return Group(
        Text(f"ariane top  {where}  {clock}", style="bold"),
        _table(brokers, len(brokers), "brokers"),
        _table(topics, for_topics, "topics"),
        _table(groups, for_groups, "groups"),
        Text(_footer(now), style="dim"),
    )


def _footer(now: Reading) -> str:
    parts = ["q: quit", *now.cuts]
    if now.missing:
        parts.append(f"no answer from {', '.join(now.missing)}: their part is missing")
    return "  |  ".join(parts)


def _table(rows: Sequence[Row], most: int, what: str) -> RenderableType:
    if not rows:
        return Text(f"no {what}\n", style="dim")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="reverse")
    for name in rows[0]:
        is_number = all(isinstance(row[name], int | float | None) for row in rows)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows[:most]:
        table.add_row(*(_cell(value) for value in row.values()))
    hidden = len(rows) - most
    caption = f"... and {hidden:,} more {what}\n" if hidden > 0 else ""
    return Group(table, Text(caption, style="dim"))


def _cell(value: object) -> Text:
    """As Text: names of topics must not be taken for markup."""
    if value is None:
        return Text("?", style="dim")
    if isinstance(value, list):
        return Text(" ".join(map(str, value)))
    return Text(f"{value:,}" if isinstance(value, int | float) else str(value))
