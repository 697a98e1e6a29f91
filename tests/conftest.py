"""Tests marked `long` take minutes, most of it the start of processes: only `make test-long` runs them."""

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("ARIANE_LONG"):
        return
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.skip(reason="takes long: make test-long"))
