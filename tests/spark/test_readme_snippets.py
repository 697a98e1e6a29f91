"""The Spark of the README and the guides, run as it stands there, in the session that is there."""

import re

import pytest
from pyspark.sql import SparkSession

from tests.examples.snippets import ADDRESS, blocks
from tests.spark.cluster_fixture import ClusterFixture

FIRST_WORDS = "from ariane.spark import session"


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("README.md", "|paid|    2|"),
        ("docs/start.md", "|paid|    2|"),
        ("docs/spark.md", "|paid|two tickets|"),
    ],
)
def test_the_first_snippet_of_the_page_prints_what_it_should(
    page: str, printed: str, spark: SparkSession, cluster: ClusterFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = [text for text, _ in blocks(page) if text.startswith(FIRST_WORDS)]
    example = re.search(r'"topic", "([a-z]+)"', program)
    assert example is not None
    topic = cluster.topic()
    cluster.send(topic, [b"two tickets", b"three tickets"], properties={"TAGS": "paid"})
    exec(program.replace(ADDRESS, cluster.nameserver).replace(f'"{example[1]}"', f'"{topic}"'), {})
    assert printed.replace(" ", "") in capsys.readouterr().out.replace(" ", "")
