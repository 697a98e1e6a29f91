"""An environment that travels with the job, as docs/spark.md has it: `spark-submit --archives`, on a real cluster.

It is made as `venv-pack` makes one, but other packages are referenced and not copied, which would take minutes.
"""

import json
import shutil
import subprocess
import tarfile
import venv
from pathlib import Path

import pyarrow as pa
import pytest

import ariane
from tests.spark import spark_job
from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.read.test_store import wait_until_indexed
from tests.spark.spark_servers import environment, standalone_cluster

_PACKAGES = ("ariane", "pyspark_ariane", "pyspark_ariane_delta", "pyspark_ariane_iceberg", "pyspark_rocketmq")


def packed(root: Path) -> Path:
    """An environment in `root`, and the archive of it. It has no other way to our packages than its own copy."""
    home = root / "environment"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    for name in _PACKAGES:
        shutil.copytree(Path(ariane.__file__).parents[1] / name, site / name)
    (site / "others.pth").write_text(str(Path(pa.__file__).parents[1]))
    archive = root / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(home, arcname=".")
    return archive


@pytest.mark.long
def test_executors_use_the_environment_that_came_with_the_job(cluster: ClusterFixture, tmp_path: Path) -> None:
    topic, out = cluster.topic(queues=2, brokers=["broker-a"]), cluster.topic(queues=2)
    cluster.spread_over(topic, {0: 40, 1: 40})
    store = cluster.stores["broker-a"]
    wait_until_indexed(store, topic, 80)
    archive = packed(tmp_path)
    with standalone_cluster(tmp_path) as master:
        result = submitted(master, archive, str(tmp_path), cluster.nameserver, topic, out, str(store))
    sent = sorted(str(number) for number in range(40) for _ in range(2))
    assert result["batch"] == result["stream"] == result["store"] == sent
    assert result["written"] == sorted(f"copy of {body}" for body in sent)
    homes = {Path(package).relative_to(tmp_path).parts[0] for package in result["packages"]}
    assert homes <= {"worker-0", "worker-1"}


def submitted(master: str, archive: Path, *arguments: str) -> dict[str, list[str]]:
    """What the program prints, which knows nothing of where it runs."""
    variables = environment() | {"PYSPARK_PYTHON": "./environment/bin/python"}
    command = [f"{variables['SPARK_HOME']}/bin/spark-submit", "--master", master]
    command += ["--archives", f"{archive}#environment", str(spark_job.__file__), master, *arguments]
    done = subprocess.run(command, cwd=archive.parent, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-6000:]
    result: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return result
