"""What can be wrong with a job, told before Spark starts: its options without asking anybody, then its places."""

from pathlib import Path

from ariane.errors import SettingsError, StoreMismatch
from ariane.spark.cluster import cluster_for
from ariane.spark.connection_options import ConnectionOptions
from ariane.spark.jobs.archive_options import ArchiveOptions
from ariane.spark.jobs.rebuild_options import RebuildOptions
from ariane.spark.jobs.replay_options import ReplayOptions
from ariane.spark.option_values import read_options
from ariane.spark.pipeline.connection import Connection, merged
from ariane.spark.pipeline.mistakes import Mistakes
from ariane.spark.pipeline.model import JobStep, Pipeline, SourceKind
from ariane.spark.planning import Planner
from ariane.spark.read_options import ReadOptions

Options = ArchiveOptions | ReplayOptions | RebuildOptions
_KINDS: dict[str, type[Options]] = {"archive": ArchiveOptions, "replay": ReplayOptions, "rebuild": RebuildOptions}


def check_job(job: JobStep, namesrv: str, mistakes: Mistakes) -> None:
    try:
        job_options(job, {"nameServer": namesrv})
    except SettingsError as error:
        named = [line for option, line in job.option_lines.items() if option in str(error)]
        mistakes.add(named[0] if named else job.line, f"step {job.name}: {error}")


def job_options(job: JobStep, connection: Connection) -> Options:
    return read_options(_KINDS[job.job], job_texts(job, connection))


def job_texts(job: JobStep, connection: Connection) -> dict[str, str]:
    """What the job is told: how the cluster is reached only if it asks one, and the file does not say otherwise."""
    asks_cluster = job.needs_cluster and issubclass(_KINDS[job.job], ConnectionOptions)
    return merged(connection, job.options) if asks_cluster else dict(job.options)


def look_up_places(pipeline: Pipeline, connection: Connection) -> None:
    """Topics of jobs, and every directory that is read: what is not there is told before Spark has started in vain."""
    for source in pipeline.sources.values():
        if source.kind is SourceKind.STORE:
            _check_store(source.options["storePath"], pipeline.place(source.line))
        elif source.kind is SourceKind.ARCHIVE:
            _check_archive(source.options["archivePath"], pipeline.place(source.line))
    for job in pipeline.jobs:
        _look_up_job(job_options(job, connection), pipeline.place(job.line))


def _look_up_job(options: Options, place: str) -> None:
    if isinstance(options, RebuildOptions):
        _check_store(options.store_path, place)
    elif isinstance(options, ReplayOptions):
        cluster_for(options.client_settings()).route(options.to_topic, fresh=True)
        _look_up_read(options.reading(), place)
    else:
        _look_up_read(options.reading(), place)


def _look_up_read(options: ReadOptions, place: str) -> None:
    if options.store_path is not None:
        _check_store(options.store_path, place)
    elif options.archive_path is not None:
        _check_archive(options.archive_path, place)
    else:
        Planner(cluster_for(options.client_settings()), options).queues()


def _check_store(path: str, place: str) -> None:
    """Patterns are left to the reader, which knows what they mean."""
    if not any(letter in path for letter in "*?[") and not (Path(path) / "commitlog").is_dir():
        raise StoreMismatch(f"{place}: {path} is no store: name the directory that holds `commitlog`")


def _check_archive(path: str, place: str) -> None:
    if not Path(path).is_dir():
        raise StoreMismatch(f"{place}: there is no archive {path}: name the directory that the job archive wrote")
