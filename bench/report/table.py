"""The outcome of a scenario as a text table, for the terminal and the documentation."""

from collections.abc import Iterator, Sequence

from bench.outcome import OURS, Outcome
from bench.scenarios.scenario import Column


def table(outcome: Outcome, columns: Sequence[Column]) -> Iterator[str]:
    """Medians, then the ratio Ariane / peer for the columns with `ratio`."""
    ratios = [column for column in columns if column.ratio]
    case_width = max([4, *map(len, outcome.cases())]) + 2
    name_width = max([6, *map(len, outcome.systems())]) + 1
    widths = [max(len(column.heading), 8) + 2 for column in columns]
    ratio_widths = [len(column.heading) + 5 for column in ratios]
    yield (
        f"{'case':<{case_width}}{'system':<{name_width}}"
        + "".join(f"{column.heading:>{width}}" for column, width in zip(columns, widths, strict=True))
        + "".join(f"{'x ' + column.heading:>{width}}" for column, width in zip(ratios, ratio_widths, strict=True))
    )
    for case in outcome.cases():
        for number, system in enumerate(name for name in outcome.systems() if _has(outcome, case, name)):
            figures = _cells(outcome, case, system, columns, widths)
            compared = _ratios(outcome, case, system, ratios, ratio_widths)
            yield f"{'' if number else case:<{case_width}}{system:<{name_width}}{figures}{compared}".rstrip()


def _has(outcome: Outcome, case: str, system: str) -> bool:
    return any(sample.case == case and sample.system == system for sample in outcome.samples)


def _cells(outcome: Outcome, case: str, system: str, columns: Sequence[Column], widths: Sequence[int]) -> str:
    cells = []
    for column, width in zip(columns, widths, strict=True):
        value = outcome.median(case, system, column.figure)
        cells.append(f"{'-' if value is None else format(value, column.form):>{width}}")
    return "".join(cells)


def _ratios(outcome: Outcome, case: str, system: str, columns: Sequence[Column], widths: Sequence[int]) -> str:
    if system == OURS:
        return ""
    cells = []
    for column, width in zip(columns, widths, strict=True):
        value = outcome.ratio(case, system, column.figure)
        cells.append(f"{'-' if value is None else format(value, '.2f'):>{width}}")
    return "".join(cells)
