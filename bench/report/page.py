"""The generated sections of docs/performance.md, between two markers; the rest is manual."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.outcome import RESULTS, Outcome, read
from bench.report.goals import goal_lines
from bench.report.java_goals import java_goal_lines
from bench.report.plots import plots
from bench.report.replication_goals import replication_goal_lines
from bench.report.table import table
from bench.scenarios.catalogue import all_scenarios
from bench.spark_figures import KEPT, Kept, read_kept

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGIN = "<!-- begin: written by `python -m bench.report` from bench/results; do not edit -->"
END = "<!-- end of the part written by `python -m bench.report` -->"
SPARK_BEGIN = "<!-- begin: written by `python -m bench.report` from bench/results/spark.json; do not edit -->"
SPARK_END = "<!-- end of Spark's part -->"


def write_page(docs: Path = DOCS, results: Path = RESULTS) -> Path:
    outcomes = read_all(results)
    page = docs / "performance.md"
    page.write_text(with_results(page.read_text(), outcomes, read_kept(results / KEPT.name)))
    drawn = docs / "plots"
    drawn.mkdir(exist_ok=True)
    for plot, picture in plots(outcomes):
        (drawn / plot.file_name).write_text(picture)
    return page


def read_all(results: Path = RESULTS) -> dict[str, Outcome]:
    paths = {scenario.name: results / f"{scenario.name}.json" for scenario in all_scenarios()}
    return {name: read(path) for name, path in sorted(paths.items()) if path.exists()}


def with_results(page: str, outcomes: Mapping[str, Outcome], spark: Kept | None) -> str:
    page = with_part(page, "\n".join(part(outcomes)))
    return with_part(page, "\n".join(spark_part(spark)), SPARK_BEGIN, SPARK_END)


def with_part(page: str, written: str, begin_mark: str = BEGIN, end_mark: str = END) -> str:
    """The page with the section between the markers replaced."""
    before, begin, rest = page.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        raise ValueError(f"the page has no markers: put {begin_mark!r} and {end_mark!r} where the results go")
    return f"{before}{begin_mark}\n{written}\n{end_mark}{after}"


def spark_part(kept: Kept | None) -> Iterator[str]:
    if kept is None:
        yield "There are no results yet: run `make spark-bench`."
        return
    yield from ("", f"{kept.machine}, Spark {kept.spark}, a session of 2 cores.", "", "```", *kept.lines(), "```", "")


def part(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    if not outcomes:
        yield "There are no results yet: run `make bench`."
        return
    yield from ("", "Goals with Apache's Java client, from the medians below:", "")
    yield from ("```", *java_goal_lines(outcomes), "```")
    yield from ("", "Other goals:", "", "```", *goal_lines(outcomes), "```")
    yield from ("", "Goals of masters with slaves:", "", "```", *replication_goal_lines(outcomes), "```")
    for scenario in all_scenarios():
        outcome = outcomes.get(scenario.name)
        if outcome is not None:
            yield from ("", f"### {outcome.title}", "", *_circumstances(outcome), "")
            yield from ("```", *table(outcome, scenario.columns), "```")
            yield from _remarks(outcome)
            yield from _pictures(outcome)
    yield ""


def _circumstances(outcome: Outcome) -> Iterator[str]:
    versions = "; ".join(f"{name}: {version}" for name, version in outcome.versions.items())
    yield f"{outcome.began}, {outcome.machine}. Medians of {outcome.repeats}, {outcome.seconds:g} s each. {versions}."
    if outcome.was_shared:
        yield (
            f"**The machine was busy before** (load average {outcome.load_average:.1f} at the beginning): if others "
            "used it during the run, the figures are only indicative. A server of many threads then gets more of the "
            "machine than one of a single thread, so compare CPU rather than rates."
        )


def _remarks(outcome: Outcome) -> Iterator[str]:
    remarks = [f"* missing: {name}: {reason}" for name, reason in outcome.missing.items()]
    remarks += [f"* {note[:300]}" for note in outcome.notes()]
    if remarks:
        yield from ("", *remarks)


def _pictures(outcome: Outcome) -> Iterator[str]:
    for plot, _ in plots({outcome.scenario: outcome}):
        yield from ("", f"![{plot.title}](plots/{plot.file_name})")
