"""`ariane pipeline`, as people run it. What needs Spark is in tests/spark; here is one run, stopped by Ctrl-C."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ariane.cli.common.output import OutputFormat
from ariane.cli.pipeline.screen import PipelineScreen, progress_line
from ariane.spark.pipeline.progress import SinkProgress
from tests.cli.command_line import ENVIRONMENT, PROGRAM, CommandLine, Outcome

SPARK_HANG_S = 300  # only a hang is this long; nothing here is measured

STREAM = """\
pipeline: lines
mode: stream
checkpoint: {work}/checkpoint
metrics: {work}/metrics.json
sources:
  lines: {{topic: pipeline-lines}}
steps:
  texts: {{sql: SELECT cast(body AS STRING) AS text FROM lines}}
sinks:
  table: {{from: texts, console: 5}}
"""


def run(*arguments: str) -> Outcome:
    done = subprocess.run(
        [*PROGRAM, "pipeline", *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=60
    )
    assert "Traceback" not in done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_the_shipped_pipelines_are_listed_shown_and_valid(tmp_path: Path) -> None:
    listed = run("list", "-o", "json")
    assert {"orders", "stats", "dlq", "trace"} <= {str(row["pipeline"]) for row in listed.rows}
    copy = tmp_path / "mine.yaml"
    copy.write_text(run("show", "orders").out)
    checked = run("check", str(copy))
    assert checked.out == f"{copy} is valid: a stream pipeline with 1 source, 3 steps, 3 sinks\n"


def test_an_error_in_the_file_is_reported_with_its_line_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STREAM.format(work=tmp_path).replace("FROM lines", "FROM lnes"))
    for verb in ("check", "run"):
        done = run(verb, str(file))
        assert done.status == 2
        assert f"error: {file}:8: step texts reads lnes, which is not a view: did you mean lines?" in done.err


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (
            ("run", "stats", "--set", "topcs=a"),
            2,
            "--set topcs: stats.yaml has no such parameter: did you mean topics?",
        ),
        (("run", "stats", "--set", "rows=few"), 2, "'few' is not a valid int"),
        (("run", "stats", "--once"), 2, "--once is for streams, but stats is a batch pipeline"),
        (("run", "orders", "--interval", "soon"), 2, "'soon' is not a duration such as 500ms, 30s or 5m"),
        (("run", "ordrs"), 2, "there is no pipeline ordrs: did you mean orders?"),
        (("run", "./none.yaml"), 2, "./none.yaml cannot be read"),
        (("run", "orders", "-n", "127.0.0.1:1"), 3, "no nameserver answers"),
    ],
)
def test_an_error_before_spark_starts_has_its_exit_code(arguments: tuple[str, ...], status: int, expected: str) -> None:
    done = run(*arguments)
    assert (done.status, done.out) == (status, "")
    assert expected in done.err


def test_a_missing_topic_is_reported_before_spark_starts(command: CommandLine) -> None:
    done = command.run("pipeline", "run", "orders", "--set", "topic=nowhere")
    assert done.status == 3
    assert "no route for topic nowhere" in done.err


def test_a_project_is_written_once(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    done = run("init", str(project), "-n", "10.0.0.1:9876")
    assert sorted(Path(line).name for line in done.lines) == [
        "README.md",
        "orders.py",
        "run.sh",
        "spark-pipeline.yml",
        "turnover.sql",
    ]
    assert 'NAME_SERVER = "10.0.0.1:9876"' in (project / "transformations" / "orders.py").read_text()
    assert os.access(project / "run.sh", os.X_OK)
    compile((project / "transformations" / "orders.py").read_text(), "orders.py", "exec")
    again = run("init", str(project))
    assert again.status == 2
    assert "exists and is not an empty directory" in again.err


@pytest.mark.long
def test_a_stream_runs_until_ctrl_c_and_ends_cleanly(command: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "lines.yaml"
    file.write_text(STREAM.format(work=tmp_path))
    command.ok("topic", "create", "pipeline-lines", "--read-queues", "1", "--write-queues", "1")
    command.ok("send", "pipeline-lines", "first line")
    with _running(command, file) as (process, errors):
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any("first line" in line for line in lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(SPARK_HANG_S) == 0, errors
    assert any(line.startswith("table: stopped, 1 rows read, 1 rows written") for line in errors), errors
    assert '"state": "stopped"' in (tmp_path / "metrics.json").read_text()
    assert not any("WARN" in line or "Traceback" in line for line in errors), errors


@contextmanager
def _running(command: CommandLine, file: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    arguments = ["pipeline", "run", str(file), "--master", "local[2]", "-n", command.namesrv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*PROGRAM, *arguments], text=True, env=ENVIRONMENT | {"PYTHONUNBUFFERED": "1"}, **pipes)  # type: ignore[call-overload]
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.extend(process.stderr))
    reader.start()
    limit = threading.Timer(SPARK_HANG_S, process.kill)
    limit.start()
    try:
        yield process, errors
    finally:
        limit.cancel()
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()
        process.stderr.close()


def test_progress_is_one_line_with_the_known_figures() -> None:
    sink = SinkProgress("lake", state="running", rows_read=1200, rows_written=3, lag=0)
    assert progress_line(sink) == "lake: running, 1,200 rows read, 3 rows written, 0 lag"


def test_a_line_is_not_repeated_but_every_change_of_state_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PipelineScreen(OutputFormat.TABLE)
    sink = SinkProgress("lake", state="running", rows_read=1)
    screen.progress([sink])
    screen.progress([sink])
    sink.state = "done"
    screen.progress([sink])
    assert capsys.readouterr().err.splitlines() == ["lake: running, 1 rows read", "lake: done, 1 rows read"]


def test_tables_are_for_people_or_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    PipelineScreen(OutputFormat.TABLE).table("totals", 3, [{"region": "eu", "n": 2}], left_out=True)
    shown = capsys.readouterr()
    assert shown.out == "\ntotals, batch 3\nregion  n\neu      2\n"
    assert "only the first 1 rows are shown" in shown.err
    PipelineScreen(OutputFormat.JSONL).table("totals", None, [{"body": b"\xff", "n": 2.5}], left_out=False)
    assert capsys.readouterr().out == '{"sink": "totals", "body": "\\\\xff", "n": 2.5}\n'
