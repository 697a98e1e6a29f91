"""Access keys and TLS, from the driver to the tasks."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ariane.client.settings import ClientSettings
from ariane.settings import Secret
from ariane.spark.cluster import Cluster
from ariane.transport.settings import TlsMode, TlsSettings
from tests.client.core.test_instance_tls import certificate
from tests.spark.cluster_fixture import cluster_in_thread

_ACCOUNTS = """
accounts:
- accessKey: spark-job
  secretKey: '12345678'
  admin: true
"""


def test_a_topic_behind_a_signature_is_read_and_written_with_the_right_key(spark: SparkSession, tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(_ACCOUNTS)
    with cluster_in_thread(tmp_path, acl_enable=True, acl_file=accounts) as cluster:
        settings = ClientSettings(nameservers=cluster.nameserver, access_key="spark-job", secret_key=Secret("12345678"))
        cluster.client = Cluster(settings)
        topic = cluster.topic(queues=1)
        signed = {"accessKey": "spark-job", "secretKey": "12345678"}
        frame = spark.sql("SELECT 'secret' AS body")
        writer = frame.write.format("rocketmq").option("nameServer", cluster.nameserver).option("topic", topic)
        writer.options(**signed).mode("append").save()
        assert [bytes(row.body) for row in cluster.read(spark, topic, **signed).load().collect()] == [b"secret"]
        with pytest.raises(PySparkException, match="NO_PERMISSION"):
            cluster.read(spark, topic, accessKey="spark-job", secretKey="wrong-secret").load().collect()


def test_servers_that_speak_tls_are_read_when_they_can_be_verified(spark: SparkSession, tmp_path: Path) -> None:
    trust, own = certificate(tmp_path, "127.0.0.1")
    tls = TlsSettings(mode=TlsMode.PERMISSIVE, certificate=own, key=own)
    with cluster_in_thread(tmp_path, tls=tls) as cluster:
        topic = cluster.topic(queues=1)
        cluster.send(topic, [b"hidden"])
        trusted = {"useTLS": "true", "tls.client.trustCertPath": str(trust)}
        assert [bytes(row.body) for row in cluster.read(spark, topic, **trusted).load().collect()] == [b"hidden"]
        with pytest.raises(PySparkException, match="certificate verify failed"):
            cluster.read(spark, topic, useTLS="true", brokerWaitSeconds=0).load().collect()
