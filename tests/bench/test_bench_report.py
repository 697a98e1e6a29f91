"""The report: tables, goals, generated sections of docs/performance.md, and charts."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.outcome import Outcome, Sample, read, save
from bench.report.goals import goals
from bench.report.java_goals import java_goal_lines, java_goals
from bench.report.page import (
    BEGIN,
    DOCS,
    END,
    SPARK_BEGIN,
    SPARK_END,
    part,
    read_all,
    with_part,
    with_results,
    write_page,
)
from bench.report.plots import plots
from bench.report.svg import Bars, bar_chart
from bench.report.table import table
from bench.scenarios.catalogue import all_scenarios
from bench.scenarios.scenario import LOAD_COLUMNS, Column
from bench.spark_figures import Figure, keep, read_kept


def outcome(
    scenario: str = "sends-async", load_average: float = 0.1, case: str = "1 KiB 16x16", **missing: str
) -> Outcome:
    """Two repeats of one case: Ariane handles 100 and 300 a second, Apache 100 both times."""
    samples = [
        Sample(case=case, system=system, repeat=repeat, figures={"messages_per_s": rate, "server_us": 10.0})
        for system, rates in (("Apache 4.9.7", (100.0, 100.0)), ("Ariane", (100.0, 300.0)))
        for repeat, rate in enumerate(rates)
    ]
    return Outcome(
        scenario=scenario,
        title="Sends",
        began="2026-11-16 00:00 UTC",
        machine="2 cores",
        cores=2,
        load_average=load_average,
        seconds=1.0,
        repeats=2,
        is_quick=False,
        versions={"Ariane": "0.1.0"},
        missing=missing,
        samples=samples,
    )


def test_a_table_has_medians_and_the_ratio_to_each_peer() -> None:
    columns = (Column("messages_per_s", "messages/s", ratio=True), Column("server_us", "CPU us", ".1f"))
    heading, ours, theirs = table(outcome(), columns)
    assert heading.split() == ["case", "system", "messages/s", "CPU", "us", "x", "messages/s"]
    assert ours.split() == ["1", "KiB", "16x16", "Ariane", "200", "10.0"]
    assert theirs.split() == ["Apache", "4.9.7", "100", "10.0", "2.00"]


def test_a_figure_that_was_not_measured_is_a_dash() -> None:
    assert "-" in list(table(outcome(), LOAD_COLUMNS))[1].split()


def test_stored_results_are_read_back(tmp_path: Path) -> None:
    assert read(save(outcome(), tmp_path)) == outcome()


def test_goals_are_met_missed_or_not_measured() -> None:
    verdicts = {goal.measure: goal.is_met for goal in goals({"sends-async": outcome()})}
    assert verdicts["sends/s, 1 KiB, 16x16 (x Apache)"] is True
    assert verdicts["CPU of a send, 1 KiB, 16x16 (x Apache)"] is False
    assert verdicts["end to end p50, idle (x Apache)"] is None


def test_a_goal_with_the_java_client_is_one_of_rate_and_one_of_cpu() -> None:
    measured = outcome("java-sends", case="binary 1 KiB, 16 threads")
    goal = next(java_goals({"java-sends": measured}))
    assert (goal.measure, goal.rate.is_met, goal.cpu.is_met) == ("binary 1 KiB, 16 threads", True, False)
    _, first, second, *_ = (" ".join(line.split()) for line in java_goal_lines({"java-sends": measured}))
    assert first == "binary 1 KiB, 16 threads 2.00 >= 1.3 met 1.00 <= 0.6 missed"
    assert second == "binary 1 KiB, 64 threads - >= 1.3 not measured - <= 0.6 not measured"


def test_a_goal_speaks_of_a_scenario_that_exists() -> None:
    """A renamed scenario would turn its goals into "not measured" silently."""
    names = {scenario.name for scenario in all_scenarios()}
    requested: set[str] = set()

    class Recorder(dict[str, Outcome]):
        def get(self, key: str, default: object = None) -> None:  # type: ignore[override]
            requested.add(key)

    list(goals(Recorder()))
    list(java_goals(Recorder()))
    assert requested
    assert requested <= names


def test_a_missing_peer_is_in_the_report() -> None:
    text = "\n".join(part({"sends-async": outcome(Redis="no such package")}))
    assert "* missing: Redis: no such package" in text


def test_a_busy_machine_is_reported() -> None:
    assert "The machine was busy before" not in "\n".join(part({"sends-async": outcome()}))
    assert "**The machine was busy before** (load average 3.0" in "\n".join(
        part({"sends-async": outcome(load_average=3.0)})
    )


def test_only_the_part_between_the_markers_is_replaced() -> None:
    page = f"manual text\n{BEGIN}\nold\n{END}\nmanual text too\n"
    assert with_part(page, "new") == f"manual text\n{BEGIN}\nnew\n{END}\nmanual text too\n"
    with pytest.raises(ValueError, match="no markers"):
        with_part("manual text", "new")


def test_the_report_links_each_plot_that_it_draws(tmp_path: Path) -> None:
    save(outcome(), tmp_path / "results")
    (tmp_path / "performance.md").write_text(f"{BEGIN}\n{END}\n{SPARK_BEGIN}\n{SPARK_END}\n")
    text = write_page(tmp_path, tmp_path / "results").read_text()
    drawn = [path.name for path in (tmp_path / "plots").iterdir()]
    assert drawn
    assert all(f"(plots/{name})" in text for name in drawn)


def test_the_page_in_the_docs_matches_the_stored_results() -> None:
    page = (DOCS / "performance.md").read_text()
    outcomes = read_all()
    assert with_results(page, outcomes, read_kept()) == page
    for plot, picture in plots(outcomes):
        assert (DOCS / "plots" / plot.file_name).read_text() == picture


def test_figures_of_spark_measured_again_replace_the_old_ones(tmp_path: Path) -> None:
    def figure(name: str, value: float, run: str) -> Figure:
        return Figure(name=name, value=value, unit="x", at_least=5, run=run)

    path = tmp_path / "spark.json"
    keep([figure("read", 6, "first"), figure("write", 7, "first")], "4.3.0", path)
    keep([figure("read", 4, "second")], "4.3.0", path)
    kept = read_kept(path)
    assert kept is not None
    words = [line.split() for line in kept.lines()]
    assert words == [
        ["first"],
        ["write", "7", "x", ">=", "5", "met"],
        ["second"],
        ["read", "4", "x", ">=", "5", "missed"],
    ]


def test_a_chart_is_well_formed_and_escapes_names() -> None:
    bars = Bars("a < b", "us", ["x & y", "z"], {"one": [1.0, None], "two": [3.0, 8.5]})
    root = ElementTree.fromstring(bar_chart(bars))
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["one, x & y: 1", "two, x & y: 3", "two, z: 8.5"]


def test_a_chart_without_values_is_still_a_chart() -> None:
    ElementTree.fromstring(bar_chart(Bars("nothing", "us", ["x"], {"one": [None]})))
