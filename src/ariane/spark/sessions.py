"""A Spark session as Ariane's source wants it: settings of Spark's own, and the Java and the home it starts with."""

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from ariane.spark.java import find_java
from ariane.spark.spark_home import unpacked_home

_TIME_ZONE = "spark.sql.session.timeZone"

_ARROW = {"ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true", "ARROW_ENABLE_NULL_CHECK_FOR_GET": "false"}

# Why each differs from Spark's default:
SETTINGS = {
    # The same Arrow batches over a Unix socket take up to 1.4 times less processor time than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Parts of a batch are read from that socket in so many bytes: each read is a call, and a wait before it.
    "spark.buffer.size": "262144",
    # Needed by the option pushdown=true; it changes nothing for readers that push nothing.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Workers keep their connections to the brokers from batch to batch.
    "spark.python.worker.reuse": "true",
    # Of every value in a batch Arrow's Java asks whether the batch has such a place, a tenth of what a short row costs.
    # Our decoder has checked each record, and pyarrow makes no batch of which it is not so.
    **{f"spark.executorEnv.{name}": value for name, value in _ARROW.items()},
    # Rows are in UTC on the wire; a table that prints in another zone than it was stored in misleads.
    _TIME_ZONE: "UTC",
}


def session(app_name: str = "ariane", *, master: str | None = None, **settings: Any) -> SparkSession:
    """The running session, or a new one.

    `settings` are Spark's own with `_` for `.` where that is not ambiguous, or given as a dict:
    `session(**{"spark.executor.memory": "4g"})`. They win over ours. Without `master` Spark decides, and outside of
    spark-submit that is every core of this machine. A `master` such as sc://host:15002 is a Spark Connect server.
    """
    if master is not None and master.startswith("sc://"):
        return _remote(app_name, master, {_dotted(name): value for name, value in settings.items()})
    if SparkSession.getActiveSession() is None:
        _prepare_environment()
    wanted = {**SETTINGS, **{_dotted(name): value for name, value in settings.items()}}
    if master is not None:
        wanted["spark.master"] = master
    builder = SparkSession.builder.appName(app_name)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    with unpacked_home(os.environ, wanted.get("spark.master")):
        return builder.getOrCreate()


def _remote(app_name: str, address: str, settings: dict[str, Any]) -> SparkSession:
    """No Java here, and none of the settings that only a server can have: those it was started with."""
    builder = SparkSession.builder.appName(app_name).remote(address)
    for name, value in {_TIME_ZONE: SETTINGS[_TIME_ZONE], **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _prepare_environment() -> None:
    java = find_java(os.environ)
    if java.home is not None:
        os.environ["JAVA_HOME"] = str(java.home)
    # Without these Spark runs the first `python3` on the PATH, which may know neither us nor pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    for name, value in _ARROW.items():  # for the driver, which on one machine is the executor, too
        os.environ.setdefault(name, value)


def _dotted(name: str) -> str:
    return name if "." in name else name.replace("_", ".")
