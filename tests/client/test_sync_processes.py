"""Whole programs with the synchronous API: exit, fork and Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ariane.sync import Admin, Producer
from tests.client.cluster_fixture import fresh
from tests.client.sync_cluster_fixture import PATIENCE_S, cluster_in_a_thread

SLOW_STEP = re.compile(r"Executing <.*> took \d+\.\d+ seconds$")


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster_in_a_thread(tmp_path_factory.mktemp("sync")) as address:
        yield address


@pytest.fixture
def topic(nameserver: str) -> str:
    name = fresh("program")
    with Admin(nameserver) as admin:
        admin.topics.create(name, queues=1)
    return name


def started(program: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(program: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit status, stdout, stderr: without the warnings of `-X dev` about slow steps, which depend on the load."""
    with program:
        try:
            out, err = program.communicate(timeout=PATIENCE_S)
        finally:
            program.kill()  # or a program that does not end would be waited for without a limit
    lines = [line for line in err.splitlines(keepends=True) if not SLOW_STEP.match(line)]
    return program.returncode, out, "".join(lines)


def test_a_program_sends_consumes_and_ends_without_a_warning(nameserver: str, topic: str) -> None:
    program = """
import sys, threading
from ariane.sync import Producer, PushConsumer

nameserver, topic = sys.argv[1:]
got = threading.Event()
consumer = PushConsumer(nameserver, group="c", start="earliest", handler=lambda message: got.set())
consumer.subscribe(topic)
with Producer(nameserver, group="g") as producer, consumer:
    producer.send(topic, b"hello")
    assert got.wait(30)
for thread in threading.enumerate():
    if thread.name.startswith("ariane-consume"):  # a pool's thread ends a moment after its pool
        thread.join(30)
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
print("done")
"""
    assert ended(started(program, nameserver, topic)) == (0, "done\n", "")


def test_open_clients_are_closed_at_exit_and_pending_messages_finished(nameserver: str, topic: str) -> None:
    program = """
import sys, threading, time
from ariane.sync import Producer, PushConsumer

nameserver, topic = sys.argv[1:]
at_work = threading.Event()

def handle(message):
    at_work.set()
    threading.main_thread().join(0.3)  # longer than the program takes to come to its end
    print("handled", message.body.decode(), flush=True)

consumer = PushConsumer(nameserver, group="open-" + topic, start="earliest", handler=handle)
consumer.subscribe(topic)
consumer.start()
producer = Producer(nameserver, group="g")
producer.start()
producer.send(topic, b"last")
assert at_work.wait(30)
"""
    assert ended(started(program, nameserver, topic)) == (0, "handled last\n", "")
    with Admin(nameserver) as admin:
        assert list(admin.offsets.get(f"open-{topic}", topic).offsets.values()) == [1]
        assert not admin.groups.members(f"open-{topic}").is_online


def test_control_c_interrupts_a_waiting_call(nameserver: str, topic: str) -> None:
    program = """
import sys
from ariane.sync import LitePullConsumer

nameserver, topic = sys.argv[1:]
with LitePullConsumer(nameserver, group="interrupted", start="earliest") as consumer:
    consumer.subscribe(topic)
    try:
        for message in consumer:
            print("got", message.body.decode(), flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        print(consumer.queues(topic) != [])
"""
    running = started(program, nameserver, topic)
    with Producer(nameserver, group="g") as producer:
        producer.send(topic, b"one")
    assert running.stdout is not None
    assert running.stdout.readline() == "got one\n"
    running.send_signal(signal.SIGINT)
    assert ended(running) == (0, "interrupted\nTrue\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_must_make_its_own_client_and_can(nameserver: str, topic: str) -> None:
    program = """
import os, sys, warnings
from ariane.sync import ClientClosed, Producer

warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on Python warns of a fork with threads: so be it
nameserver, topic = sys.argv[1:]
with Producer(nameserver, group="g") as producer:
    producer.send(topic, b"parent")
    child = os.fork()
    if child == 0:
        try:
            producer.send(topic, b"child")
        except ClientClosed as error:
            print(error, flush=True)
        with Producer(nameserver, group="g") as own:
            own.send(topic, b"child")
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    producer.send(topic, b"parent again")
print(os.waitstatus_to_exitcode(status))
"""
    code, out, err = ended(started(program, nameserver, topic))
    assert (code, err) == (0, "")
    assert out == "this client belongs to the process that forked: make a new client in the child\n7\n"
    with Admin(nameserver) as admin:
        assert [message.body for message in admin.queues.scan(topic)] == [b"parent", b"child", b"parent again"]
