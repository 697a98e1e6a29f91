"""The Python blocks of docs/client.md print what the page shows."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.broker.brokers import running_cluster
from tests.client.cluster_fixture import QUICK_LEVELS
from tests.examples.snippets import blocks, run_block

BLOCK_TIMEOUT_S = 40


async def test_every_block_of_the_client_page_prints_the_output_below_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL, "ariane")  # one of the blocks fails on purpose
    monkeypatch.chdir(tmp_path)  # one of them keeps offsets in a file
    store = {"message_delay_levels": QUICK_LEVELS}
    names: dict[str, Any] = {}
    async with running_cluster(tmp_path, store=store, auto_create_topics=True) as cluster:
        for text, expected in blocks("docs/client.md"):
            async with asyncio.timeout(BLOCK_TIMEOUT_S):
                assert await run_block(text, cluster.nameserver, names) == expected, text
