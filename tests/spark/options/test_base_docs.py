"""docs/spark.md lists the options as they are declared."""

from pathlib import Path

import pytest

from ariane.spark.options.base import option_table
from ariane.spark.options.read import ReadOptions
from ariane.spark.options.write import WriteOptions


@pytest.mark.parametrize("kind", [ReadOptions, WriteOptions])
def test_the_page_lists_every_option_as_it_is_declared(kind: type[ReadOptions] | type[WriteOptions]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    assert option_table(kind) in page
