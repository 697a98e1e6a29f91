"""Problems in a pipeline file: each has its line, cause and hint, and none of them needs Spark."""

import subprocess
import sys
from pathlib import Path

import pytest

from ariane.errors import SettingsError, StoreMismatch
from ariane.spark.pipeline.checks import check_inputs_exist, sources_of, view_order
from ariane.spark.pipeline.load import find, load_params, load_pipeline, shipped
from ariane.spark.pipeline.model import Mode, Pipeline, SinkKind, SourceKind, SqlStep

NAMESRV = "127.0.0.1:9876"
GOOD = """\
pipeline: shop
params:
  day: {type: timestamp, default: null}
  least: {type: int, default: 5}
sources:
  orders:
    topic: orders
    options:
      startingTimestamp: ${day}
steps:
  large:
    sql: |
      SELECT *
      FROM orders
      WHERE length(body) > ${least}
sinks:
  table:
    from: large
    console: 10
"""


def load(directory: Path, text: str, **params: str) -> Pipeline:
    file = directory / "shop.yaml"
    file.write_text(text)
    return load_pipeline(file, params, NAMESRV, "shop.yaml")


def error_text(directory: Path, text: str, **params: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(directory, text, **params)
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_a_file_without_problems_becomes_the_model(tmp_path: Path) -> None:
    pipeline = load(tmp_path, GOOD, least="7")
    assert pipeline.name == "shop"
    assert pipeline.mode is Mode.BATCH
    assert pipeline.sources["orders"].kind is SourceKind.TOPIC
    assert pipeline.sources["orders"].options == {"topic": "orders"}
    step = pipeline.steps["large"]
    assert isinstance(step, SqlStep)
    assert step.sql.endswith("length(body) > 7\n")
    assert pipeline.sinks["table"].kind is SinkKind.CONSOLE


def test_an_option_is_left_out_while_its_parameter_is_not_set(tmp_path: Path) -> None:
    params = load(tmp_path, GOOD, day="2026-01-31T08:00:00Z").sources["orders"].options
    assert params == {"topic": "orders", "startingTimestamp": "2026-01-31T08:00:00Z"}


def test_a_sink_is_left_out_while_its_target_is_not_set(tmp_path: Path) -> None:
    text = GOOD + "  lake: {from: large, parquet: '${to}'}\n"
    text = text.replace("params:\n", "params:\n  to: {default: null}\n")
    assert set(load(tmp_path, text).sinks) == {"table"}
    assert set(load(tmp_path, text, to="lake").sinks) == {"table", "lake"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            changed("pipeline: shop", "pipeline: shop\nmod: batch"),
            "shop.yaml:2: the pipeline has no key mod: did you mean mode?",
        ),
        (changed("topic: orders", "topc: orders"), "shop.yaml:7: source orders has no key topc: did you mean topic?"),
        (
            changed("startingTimestamp: ${day}", "startingOffset: latest"),
            "shop.yaml:9: source orders: option startingOffset is unknown: did you mean startingOffsets?",
        ),
        (
            changed("FROM orders", "FROM ordres"),
            "shop.yaml:14: step large reads ordres, which is not a view: did you mean orders?",
        ),
        (changed("FROM orders", "FROM large"), "shop.yaml:13: step large reads itself"),
        (
            changed("${least}", "${lest}"),
            "shop.yaml:15: sql of step large: there is no parameter lest: did you mean least?",
        ),
        (
            changed("${least}", "${day}"),
            "shop.yaml:15: sql of step large: parameter day is not set: give it with --set day=VALUE",
        ),
        (
            changed("default: 5", "default: five"),
            "shop.yaml:4: least of params: the default 'five' is not a valid int: a whole number expected",
        ),
        (
            changed("type: int", "type: integer"),
            "shop.yaml:4: type of least of params: 'integer' is none of string, int,",
        ),
        (
            changed("{type: int, default: 5}", "{type: int, about: How many.}"),
            "shop.yaml:4: parameter least (How many) has no default: give it with --set least=VALUE",
        ),
        (
            changed("from: large", "from: larg"),
            "shop.yaml:18: sink table reads larg, which is not a view: did you mean large?",
        ),
        (
            changed("console: 10", "console: many"),
            "shop.yaml:19: console of sink table: 'many' is not a whole number of at least 1",
        ),
        (
            changed("console: 10", "console: 10\n    parquet: out"),
            "shop.yaml:19: sink table must have exactly one of topic, parquet, delta, iceberg, console; it has parquet",
        ),
        (
            changed("console: 10", "console: 10\n    json: true"),
            "shop.yaml:20: json of sink table: is not used with `console`",
        ),
        (
            changed("console: 10", "console: 10\n    mode: complete"),
            "sink table has mode complete: in a batch console supports append",
        ),
        (
            changed("console: 10", "iceberg: orders"),
            "shop.yaml:18: sink table: table orders has no namespace: a name such as lake.orders expected",
        ),
        (
            changed("console: 10", "iceberg: lake.orders\n    options: {catlog.uri: there}"),
            "shop.yaml:18: sink table: option catlog.uri is unknown: did you mean catalog.uri?",
        ),
        (
            changed("console: 10", "iceberg: lake.orders\n    mode: complete"),
            "sink table has mode complete: in a batch iceberg supports append, overwrite",
        ),
        (
            changed("sinks:\n", "sinks: [1]\nother:\n"),
            "shop.yaml:16: sinks must be a mapping, `name: value` on lines of its own; this is a list",
        ),
        (changed("topic: orders", "topic: [orders]"), "topic of source orders must be a text; this is a list"),
        (
            changed("topic: orders", "topic: orders\n    topic: others"),
            "shop.yaml:8: source orders has the key topic twice: remove one",
        ),
        (
            changed("topic: orders", "topic: orders\n    dead_letters: {parquet: bad}"),
            "bodies are only parsed with a `schema`",
        ),
        (changed("pipeline: shop", "pipeline: shop\nmode: stream"), "a stream needs `checkpoint: DIRECTORY`"),
        (changed("pipeline: shop", "pipeline: shop\ninterval: 5s"), "interval is for streams"),
        (
            changed("pipeline: shop", "pipeline: shop\nmode: stream\ncheckpoint: c\ninterval: 5 parsecs"),
            "'5 parsecs' is not a duration",
        ),
        ("pipeline: [", "shop.yaml:1: this is not YAML"),
        ("", "shop.yaml:1: the file is empty"),
        ("pipeline: shop\n", "the pipeline has no sources: add `sources:`"),
    ],
)
def test_a_problem_has_line_cause_and_hint(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in error_text(tmp_path, text)


def test_all_problems_are_reported_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = changed("topic: orders", "topc: orders").replace("console: 10", "console: x")
    first, *others = error_text(tmp_path, text).splitlines()
    assert first.endswith("problems in the pipeline")
    lines = [int(line.split(":")[1]) for line in others]
    assert lines == sorted(lines)
    assert {7, 19} <= set(lines)


def test_steps_that_read_each_other_are_a_cycle(tmp_path: Path) -> None:
    text = changed("FROM orders", "FROM other") + ""
    text = text.replace("sinks:", "  other:\n    sql: SELECT * FROM large\nsinks:")
    assert "steps read each other in a cycle" in error_text(tmp_path, text)


def test_the_order_of_steps_in_the_file_does_not_matter(tmp_path: Path) -> None:
    text = GOOD.replace("steps:\n", "steps:\n  last: {sql: SELECT * FROM large}\n").replace("from: large", "from: last")
    pipeline = load(tmp_path, text)
    assert view_order(pipeline) == ["large", "last"]
    assert sources_of(pipeline, "last") == {"orders"}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"lest": "3"}, "--set lest: shop.yaml has no such parameter: did you mean least?"),
        ({"least": "three"}, "--set least=three: 'three' is not a valid int: a whole number expected"),
        ({"day": "yesterday"}, "'yesterday' is not a valid timestamp"),
    ],
)
def test_a_wrong_parameter_is_reported(tmp_path: Path, params: dict[str, str], expected: str) -> None:
    assert expected in error_text(tmp_path, GOOD, **params)


def test_a_function_is_looked_up_in_the_directory_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "shop_steps_one.py").write_text("def twice(rows, times):\n    return rows\n")
    step = "    python: shop_steps_one:twice\n    inputs: [orders]\n    args: {times: 2}\n"
    text = GOOD[: GOOD.index("    sql: |")] + step + GOOD[GOOD.index("sinks:") :]
    load(tmp_path, text)
    assert "does not take 1 inputs and args ['often']" in error_text(tmp_path, text.replace("times: 2", "often: 2"))
    assert "has no attribute 'thrice'" in error_text(tmp_path, text.replace(":twice", ":thrice"))
    assert "No module named 'shop_steps_two'" in error_text(tmp_path, text.replace("steps_one", "steps_two"))
    assert "module:function expected" in error_text(tmp_path, text.replace(":twice", ""))


def test_a_stream_from_latest_needs_a_group(tmp_path: Path) -> None:
    text = changed("pipeline: shop", "pipeline: shop\nmode: stream\ncheckpoint: c")
    text = text.replace("startingTimestamp: ${day}", "startingOffsets: latest")
    assert "needs the option consumerGroup" in error_text(tmp_path, text)
    text = text.replace("startingOffsets: latest", "startingOffsets: latest\n      consumerGroup: shop")
    assert load(tmp_path, text).mode is Mode.STREAM


def test_a_file_with_jobs_has_nothing_else(tmp_path: Path) -> None:
    job = "pipeline: keep\nsteps:\n  all:\n    job: archive\n    options: {topic: orders, archivePath: out}\n"
    assert load(tmp_path, job).jobs[0].options == {"topic": "orders", "archivePath": "out"}
    assert "cannot be in a file with jobs" in error_text(tmp_path, job + "sinks: {t: {from: all, console: 3}}\n")
    assert "did you mean archive?" in error_text(tmp_path, job.replace("job: archive", "job: archve"))


@pytest.mark.parametrize(
    ("job", "options", "expected"),
    [
        ("archive", "{archivePath: out}", ":4: step all: give topic, topicPattern or storePath: what to archive"),
        (
            "archive",
            "\n      topic: orders\n      archivPath: out",
            ":7: step all: option archivPath is unknown: did you mean archivePath?",
        ),
        ("replay", "{topic: orders}", "step all: the job replay needs the options topic and toTopic"),
        ("replay", "{topic: orders, toTopic: orders}", "orders would be replayed into itself"),
        (
            "replay",
            "\n      topic: orders\n      toTopic: other\n      speed: fast",
            ":8: step all: option speed is 'fast': a number above 0, such as 1.0 or 10, or max",
        ),
        ("rebuild", "{}", "the job rebuild needs the option storePath"),
        ("rebuild", "{storePath: s, queues: false, index: false}", "there is nothing to rebuild"),
    ],
)
def test_a_problem_in_the_options_of_a_job_has_its_line(tmp_path: Path, job: str, options: str, expected: str) -> None:
    text = f"pipeline: keep\nsteps:\n  all:\n    job: {job}\n    options: {options}\n"
    assert expected in error_text(tmp_path, text)


def test_one_name_in_two_clusters_is_not_a_replay_into_itself(tmp_path: Path) -> None:
    options = "{topic: orders, toTopic: orders, sourceNameServer: '10.0.0.1:9876'}"
    text = f"pipeline: keep\nsteps:\n  all:\n    job: replay\n    options: {options}\n"
    assert load(tmp_path, text).jobs[0].job == "replay"
    assert "into itself" in error_text(tmp_path, text.replace("10.0.0.1:9876", NAMESRV))


def test_a_missing_input_is_reported_with_its_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for source, expected in ((f"store: {nowhere}", "is not a store"), (f"archive: {nowhere}", "there is no archive")):
        with pytest.raises(StoreMismatch, match=rf"shop.yaml:7: .*{expected}"):
            check_inputs_exist(load(tmp_path, changed("topic: orders", source)), {})
    job = f"pipeline: keep\nsteps:\n  all:\n    job: rebuild\n    options: {{storePath: {nowhere}}}\n"
    with pytest.raises(StoreMismatch, match=r"shop.yaml:4: .*is not a store"):
        check_inputs_exist(load(tmp_path, job.replace("options", "cluster: false\n    options")), {})


def test_a_missing_file_and_an_unknown_name_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.yaml cannot be read"):
        load_pipeline(tmp_path / "none.yaml", {}, NAMESRV)
    with pytest.raises(SettingsError, match="there is no pipeline ordrs: did you mean orders"):
        find("ordrs")


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_pipeline_passes_the_checks(name: str) -> None:
    path = shipped()[name]
    about, params = load_params(path)
    needed = {param.name: param.name for param in params.values() if param.is_required}
    if name == "archive":  # of a topic, of several or of a store: one of them
        needed["topic"] = "orders"
    pipeline = load_pipeline(path, needed, NAMESRV, path.name)
    assert pipeline.about == about


def test_checking_a_file_imports_no_spark() -> None:
    code = (
        "import sys; from ariane.spark.pipeline.load import load_pipeline; from ariane.spark.pipeline.load import "
        "shipped; load_pipeline(shipped()['orders'], {}, 'x:1'); assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
