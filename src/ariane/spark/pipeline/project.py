"""Template of a project for Spark Declarative Pipelines, which `ariane pipeline init` writes.

Spark finds the format `rocketmq` by itself, through the module pyspark_ariane: a project that registers it explicitly
runs, but `spark-pipelines` then exits with code 1 (Spark 4.3). Settings that are fixed when Spark starts must not be in
the project's file, where they stop every flow; so they are in the script.
"""

from pathlib import Path
from string import Template

from ariane.errors import SettingsError

_SPEC = Template("""\
name: $name
storage: $storage
libraries:
  - glob:
      include: transformations/**
""")

_ORDERS = Template('''\
"""Orders from a topic, one row per event; and paid orders to another topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

NAME_SERVER = "$namesrv"
BODY = "order_id STRING, customer STRING, status STRING, region STRING, amount DOUBLE, currency STRING, at TIMESTAMP"

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Bodies that are not orders have nulls in their columns, and their text in `body`: no message is dropped."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameServer", NAME_SERVER)
        .option("topic", "$topic")
        .option("startingOffsets", "earliest")
        .load()
    )
    text = messages.body.cast("string")
    rows = messages.select("queueOffset", "storeTimestamp", text.alias("body"), F.from_json(text, BODY).alias("event"))
    return rows.select("queueOffset", "storeTimestamp", "body", "event.*")


dp.create_sink("paid_topic", format="rocketmq", options={"nameServer": NAME_SERVER, "topic": "$paid"})


@dp.append_flow(target="paid_topic")
def paid() -> DataFrame:
    rows = spark.readStream.table("orders").where("status = 'paid'")
    return rows.select("body", F.col("region").alias("tags"), F.col("order_id").alias("keys"))
''')

_TURNOVER = """\
CREATE MATERIALIZED VIEW turnover AS
SELECT region, currency, count(*) AS orders, round(sum(amount), 2) AS amount
FROM orders
WHERE status = 'created' AND amount > 0
GROUP BY region, currency
"""

_RUN = """\
#!/bin/sh
# Runs the pipeline once: each run continues where the last one ended. More options go to spark-pipelines, for example
# `./run.sh --remote sc://10.0.0.1:15002`.
set -eu
cd "$(dirname "$0")"
: "${PYSPARK_PYTHON:=$(command -v python3)}"
export PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON="${PYSPARK_DRIVER_PYTHON:-$PYSPARK_PYTHON}"
# The Java that comes with ariane[spark], if no other is installed.
java='import os; from ariane.spark.spark_session import find_java; print(find_java(os.environ).home or "")'
home=$("$PYSPARK_PYTHON" -c "$java")
if [ -n "$home" ]; then export JAVA_HOME="$home"; fi
# A catalog that outlives the run: without it the second run fails, because its tables exist already.
exec spark-pipelines --conf spark.sql.catalogImplementation=hive \\
    --conf spark.python.unix.domain.socket.enabled=true "$@" run
"""

_README = Template("""\
# $name

A project for [Spark Declarative Pipelines](https://spark.apache.org/docs/latest/declarative-pipelines-programming-guide.html)
over RocketMQ topics.

    pip install "ariane[spark]" "pyspark[pipelines]"
    ariane up --demo        # in another terminal: a broker, and orders in the topic `$topic`
    ./run.sh

- `transformations/orders.py`: the topic `$topic` as a table, and paid orders to the topic `$paid`.
- `transformations/turnover.sql`: the sum of the orders by region. Look at it with
  `spark-sql --conf spark.sql.catalogImplementation=hive -e 'SELECT * FROM turnover'`.
- `spark-pipeline.yml`: the files of the pipeline, and the directory of its checkpoints.

Each run reads the messages since the last one. To start over, remove `storage`, `spark-warehouse` and `metastore_db`.
""")


def write_project(directory: Path, namesrv: str, topic: str = "orders", paid: str = "orders-paid") -> list[Path]:
    """The files that it wrote; SettingsError when the directory is not empty."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise SettingsError(f"{directory} exists and is not an empty directory: name another directory")
    words = {"name": directory.resolve().name, "namesrv": namesrv, "topic": topic, "paid": paid}
    words["storage"] = (directory.resolve() / "storage").as_uri()
    files = {
        "spark-pipeline.yml": _SPEC.substitute(words),
        "transformations/orders.py": _ORDERS.substitute(words),
        "transformations/turnover.sql": _TURNOVER,
        "run.sh": _RUN,
        "README.md": _README.substitute(words),
    }
    return [_write_file(directory / name, text) for name, text in files.items()]


def _write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if path.suffix == ".sh":
        path.chmod(0o755)
    return path
