"""The pytest plugin in a separate project with plain pytest, as users have it."""

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.testing.commands import ENVIRONMENT, HANG_S

ROOT = Path(__file__).parents[2]
CPP_PRODUCER = ROOT / "tests" / "clients" / "cpp_producer.py"

SAMPLE = """
import asyncio

import pytest

from ariane.client.consumer.lite_pull import LitePullConsumer
from ariane.client.producer.producer import Producer
from ariane.client.settings import ClientSettings
from ariane.testing import FakeClock


def test_a_plain_test_sends_and_waits(ariane_broker):
    asyncio.run(pay(ariane_broker.namesrv, b"first"))
    (message,) = ariane_broker.wait_for_messages("orders", 1)
    assert (message.body, message.tags) == (b"first", "paid")


def test_each_test_has_its_own_broker(ariane_broker):
    assert ariane_broker.messages("orders") == []
    assert ariane_broker.lag("billing") is None


def test_a_topic_can_be_created_first(ariane_broker):
    ariane_broker.create_topic("orders", queues=2)
    offsets = [ariane_broker.send("orders", b"%d" % number).queue.queue_id for number in range(24)]
    assert set(offsets) == {0, 1}


async def pay(namesrv, body):
    async with Producer(namesrv, group="shop") as producer:
        await producer.send("orders", body, tags="paid")


@pytest.mark.asyncio
async def test_an_async_test_shares_nothing_with_the_broker_but_sockets(ariane_broker):
    await ariane_broker.aio.create_topic("orders", queues=1)
    sending = asyncio.create_task(pay(ariane_broker.namesrv, b"soon"))
    (message,) = await ariane_broker.aio.wait_for_messages("orders", 1)
    assert message.body == b"soon"
    await sending
    quick = ClientSettings(offsets_save_interval_s=0.1)
    async with LitePullConsumer(ariane_broker.namesrv, group="billing", start="earliest", settings=quick) as consumer:
        consumer.subscribe("orders")
        assert (await anext(consumer)).body == b"soon"
        await consumer.commit()
        await ariane_broker.aio.wait_for_lag("billing", 0)
    assert await ariane_broker.aio.lag("billing", "orders") == 0


@pytest.mark.asyncio
async def test_a_wait_that_would_block_the_loop_names_the_async_method(ariane_broker):
    with pytest.raises(RuntimeError, match="aio.wait_for_messages"):
        ariane_broker.wait_for_messages("orders", 1)


def test_a_wait_that_times_out_reports_the_state(ariane_broker):
    ariane_broker.send("orders", b"only one")
    with pytest.raises(AssertionError, match="1 of 2 messages of orders after 0.05 s: .b'only one'"):
        ariane_broker.wait_for_messages("orders", 2, timeout_s=0.05)
    with pytest.raises(AssertionError, match="an unknown lag"):
        ariane_broker.wait_for_lag("billing", 0, timeout_s=0.05)


class TestWithSettings:
    @pytest.fixture
    def ariane_broker_settings(self):
        return {"auto_create_topics": False, "store": {"max_message_bytes": 4096}}

    def test_a_test_can_have_a_broker_with_other_settings(self, ariane_broker):
        with pytest.raises(Exception, match="topic create orders"):
            ariane_broker.send("orders", b"x")


class TestWithItsOwnTime:
    @pytest.fixture
    def ariane_broker_settings(self):
        return {"clock": FakeClock()}

    def test_a_test_does_not_wait_for_a_delayed_message(self, ariane_broker):
        ariane_broker.send("orders", b"in two hours", delay_level=18)
        ariane_broker.advance(2 * 3600)
        assert len(ariane_broker.wait_for_messages("orders", 1)) == 1
"""

UNUSED = """
import sys


def test_a_session_without_a_broker_imports_none():
    ours = {name for name in sys.modules if name.partition(".")[0] == "ariane"}
    assert ours == {"ariane", "ariane.testing", "ariane.testing.plugin"}
"""

FOREIGN = f"""
import os
import subprocess
import sys


def test_a_third_party_client(ariane_broker, tmp_path):
    arguments = [sys.executable, {str(CPP_PRODUCER)!r}, ariane_broker.namesrv, "orders", "hello"]
    subprocess.run(arguments, env={{**os.environ, "HOME": str(tmp_path)}}, check=True, timeout={HANG_S})
    (message,) = ariane_broker.wait_for_messages("orders", 1)
    assert (message.body, message.keys) == (b"hello", ("key-1",))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project, and the metadata that an installation makes from pyproject.toml."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    installed = tmp_path / "site" / "ariane_entry-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: ariane-entry\nVersion: 0\n")
    lines = [f"{name} = {target}\n" for name, target in declared.items()]
    (installed / "entry_points.txt").write_text("[pytest11]\n" + "".join(lines))
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop"


def run_pytest(project: Path, code: str) -> str:
    (project / "test_shop.py").write_text(code)
    (project / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    )
    path = os.pathsep.join([str(project.parent / "site"), ENVIRONMENT["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"],
        cwd=project,
        env=ENVIRONMENT | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_project_tests_against_a_real_broker(project: Path) -> None:
    assert "8 passed" in run_pytest(project, SAMPLE)


def test_a_session_that_needs_no_broker_imports_none(project: Path) -> None:
    assert "1 passed" in run_pytest(project, UNUSED)


@pytest.mark.skipif(importlib.util.find_spec("rocketmq") is None, reason="the C++ client's wheel is for Linux x86-64")
def test_a_third_party_client_works_with_the_fixture(project: Path) -> None:
    assert "1 passed" in run_pytest(project, FOREIGN)
