"""`ariane pipeline`: data pipelines on Spark, defined in a YAML file; docs/pipelines.md."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, output_option, render
from ariane.cli.common.parameters import name_value_pairs
from ariane.cli.tree import pipeline as pipeline_group

if TYPE_CHECKING:
    from ariane.spark.pipeline.model import Pipeline

_set_option = click.option(
    "--set",
    "values",
    metavar="NAME=VALUE",
    multiple=True,
    callback=name_value_pairs,
    help="Parameter of the pipeline; can be repeated.",
)


def _duration(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    from ariane.spark.pipeline.document import duration_s

    seconds = None if text is None else duration_s(text)
    if text is not None and seconds is None:
        raise click.BadParameter(f"{text!r} is not a duration such as 500ms, 30s or 5m", context, parameter)
    return seconds


@pipeline_group.command(short_help="Run a pipeline: one of Ariane's, or a file.")
@click.argument("pipeline", metavar="FILE.yaml|NAME")
@_set_option
@click.option(
    "--master", metavar="URL", help="Spark master: local[2], spark://HOST:PORT. Default: all cores of this machine."
)
@click.option("--once", is_flag=True, help="Streams: process the messages that exist now, then exit.")
@click.option("--interval", callback=_duration, metavar="TIME", help="Streams: time between micro-batches, such as 5s.")
@click.option(
    "--metrics", metavar="FILE", help="Write metrics of the run to this file: .json, or .prom for Prometheus."
)
@connected
@output_option(OutputFormat.TABLE, OutputFormat.JSONL)
def run(
    pipeline: str,
    values: dict[str, str],
    master: str | None,
    once: bool,
    interval: float | None,
    metrics: str | None,
    connection: Connection,
    output: OutputFormat,
) -> int:
    """Run a pipeline: one that comes with Ariane, by its name, or a file of your own.

    Errors in the file are reported with their line before Spark starts. A stream runs until Ctrl-C, which lets the
    current micro-batch finish; the next run continues from there.

    \b
    Examples:
      ariane pipeline run stats --set topics=orders
      ariane pipeline run orders --once
      ariane pipeline run my.yaml --set day=2026-01-31 --master spark://10.0.0.1:7077
    """
    from ariane.cli.pipeline.run import PipelineSession
    from ariane.cli.pipeline.screen import PipelineScreen

    loaded = _load(pipeline, values, connection.namesrv)
    if (once or interval is not None) and loaded.mode != "stream":
        option = "--once" if once else "--interval"
        raise click.UsageError(
            f"{option} is for streams, but {loaded.name} is a batch pipeline", click.get_current_context()
        )
    debug = bool(getattr(click.get_current_context().obj, "debug", False))
    return PipelineSession(loaded, connection, PipelineScreen(output), master, once, interval, metrics, debug).run()


@pipeline_group.command("list")
@output_option()
def list_pipelines(output: OutputFormat) -> None:
    """List the pipelines that come with Ariane.

    \b
    Examples:
      ariane pipeline list
      ariane pipeline list -o json
    """
    from ariane.spark.pipeline.load import load_params, shipped

    rows = []
    for name, path in shipped().items():
        about, params = load_params(path)
        needed = [f"{param.name}=..." for param in params.values() if param.is_required]
        rows.append({"pipeline": name, "needs": needed, "about": about, "params": sorted(params), "file": str(path)})
    render(rows, output, ("pipeline", "needs", "about"))


@pipeline_group.command(short_help="Print the file of one of Ariane's pipelines.")
@click.argument("name")
def show(name: str) -> None:
    """Print the file of a pipeline that comes with Ariane, as a starting point for your own.

    \b
    Examples:
      ariane pipeline show orders
      ariane pipeline show orders > my.yaml
    """
    from ariane.spark.pipeline.load import find

    path, _ = find(name)
    click.echo(path.read_text(encoding="utf-8"), nl=False)


@pipeline_group.command(short_help="Check the file of a pipeline for errors.")
@click.argument("pipeline", metavar="FILE.yaml|NAME")
@_set_option
def check(pipeline: str, values: dict[str, str]) -> None:
    """Check the file of a pipeline for errors, without Spark and without a cluster. Exits with 2 if there are any.

    What only Spark can check, such as the columns of a view, is checked when the pipeline runs, before its first row.

    \b
    Examples:
      ariane pipeline check my.yaml
      ariane pipeline check my.yaml --set day=2026-01-31
    """
    loaded = _load(pipeline, values, "127.0.0.1:9876")
    parts = [(len(loaded.sources), "source"), (len(loaded.steps), "step"), (len(loaded.sinks), "sink")]
    counts = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in parts)
    click.echo(f"{loaded.file} is valid: a {loaded.mode} pipeline with {counts}")


@pipeline_group.command(short_help="Write a project for Spark's declarative pipelines.")
@click.argument("directory", type=click.Path(path_type=Path))
@connected
def init(directory: Path, connection: Connection) -> None:
    """Write a project for Spark's own declarative pipelines that reads and writes topics.

    Its README.md explains how to run it. The directory must be empty or must not exist.

    \b
    Examples:
      ariane pipeline init shop
      ariane pipeline init shop -n 10.0.0.1:9876
    """
    from ariane.spark.pipeline.project import write_project

    for file in write_project(directory, connection.namesrv):
        click.echo(str(file))
    click.echo(f"next: read {directory / 'README.md'}", err=True)


def _load(name: str, values: dict[str, str], namesrv: str) -> "Pipeline":
    from ariane.spark.pipeline.load import find, load_pipeline

    path, shown_as = find(name)
    return load_pipeline(path, values, namesrv, shown_as)
