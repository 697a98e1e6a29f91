"""The Spark home of a session: it has the programs and JARs, but not the zip of pyspark."""

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from ariane.spark.spark_session import make_home, unpacked_home


def home_while_starting(environment: Mapping[str, str], master: str | None) -> str | None:
    with unpacked_home(environment, master):
        return os.environ.get("SPARK_HOME")


def test_workers_import_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    path = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).first()
    assert path == pyspark.__file__
    assert "SPARK_HOME" not in os.environ


def test_the_home_has_what_spark_starts_from_and_no_zip(tmp_path: Path) -> None:
    kept = {"XDG_CACHE_HOME": str(tmp_path)}
    home = make_home(kept)
    assert home is not None
    assert (home / "bin" / "spark-submit").exists()
    assert list((home / "jars").glob("spark-core*.jar"))
    assert not (home / "python").exists()
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path / "of-another-version")
    assert make_home(kept) == home
    assert list((home / "jars").glob("spark-core*.jar"))


@pytest.mark.parametrize("master", [None, "local", "local[2]", "local[*]"])
def test_on_one_machine_spark_starts_from_it(tmp_path: Path, master: str | None) -> None:
    kept = {"XDG_CACHE_HOME": str(tmp_path)}
    assert home_while_starting(kept, master) == str(make_home(kept))
    assert "SPARK_HOME" not in os.environ


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "yarn", "local-cluster[2,1,1024]"])
def test_clusters_start_with_the_default_home(tmp_path: Path, master: str) -> None:
    assert home_while_starting({"XDG_CACHE_HOME": str(tmp_path)}, master) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("SPARK_HOME", "/opt/spark"), ("SPARK_CONF_DIR", "/etc/spark"), ("PYSPARK_PYTHON", "/usr/bin/python3")],
)
def test_settings_of_the_user_are_kept(tmp_path: Path, name: str, value: str) -> None:
    assert home_while_starting({"XDG_CACHE_HOME": str(tmp_path), name: value}, "local[2]") is None


def test_without_a_writable_cache_spark_starts_with_the_default_home(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert home_while_starting({"XDG_CACHE_HOME": str(tmp_path / "file")}, "local[2]") is None
