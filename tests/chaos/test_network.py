"""Faults of links do what they say: a chaos run whose cuts let everything pass would prove nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.power_cut import NOT_ALLOWED

ROOT = Path(__file__).parents[2]
SENT_BYTES = 150_000
SLOW_KBIT_S = 800
SERVER = """
import socket
with socket.create_server(("0.0.0.0", 7000)) as server:
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            count = 0
            while data := connection.recv(65536):
                count += len(data)
            connection.sendall(b"%d" % count)
"""
CHILD = f"""
import os, socket, subprocess, sys, time
from pathlib import Path
from tests.chaos.network import Namespaces
from tests.chaos.power_cut import NOT_ALLOWED, NotAllowed

def outcome(host):
    began = time.monotonic()
    try:
        with socket.create_connection((host, 7000), timeout=0.5) as connection:
            connection.settimeout(30)
            connection.sendall(bytes({SENT_BYTES}))
            connection.shutdown(socket.SHUT_WR)
            got = connection.recv(100).decode()
    except OSError as error:
        return type(error).__name__
    is_slow = time.monotonic() - began > ({SENT_BYTES} - 65536) * 8 / ({SLOW_KBIT_S} * 1000)
    return got + (" slowly" if is_slow else "")

try:
    with Namespaces.open() as network:
        node, other = network.node("server"), network.node("other")
        command = [*node.prefix, sys.executable, "-c", sys.argv[1]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            server.stdout.readline()
            try:
                print("whole:", outcome(node.host))
                network.drop(node, [other.host])
                print("another cut:", outcome(node.host))
                network.drop(node, [network.host], outgoing=False)
                print("incoming cut:", outcome(node.host))
                network.heal(node)
                print("healed:", outcome(node.host))
                network.drop(node, [network.host], incoming=False)
                print("outgoing cut:", outcome(node.host))
                network.heal(node)
                network.reset(node, [network.host])
                print("reset:", outcome(node.host))
                network.heal(node)
                network.slow_down(node, {SLOW_KBIT_S})
                print("slow:", outcome(node.host))
            finally:
                server.kill()
    print("left:", len(list(Path("/run/netns").glob(f"ariane-{{os.getpid()}}-*"))))
except NotAllowed as error:
    print(error)
    sys.exit({NOT_ALLOWED})
"""


def test_links_are_cut_in_each_direction_reset_and_healed() -> None:
    child = subprocess.run([sys.executable, "-c", CHILD, SERVER], cwd=ROOT, capture_output=True, text=True, timeout=120)
    if child.returncode == NOT_ALLOWED:
        pytest.skip(child.stdout.strip())
    assert child.returncode == 0, child.stderr
    found = dict(line.split(": ") for line in child.stdout.splitlines())
    assert found.pop("slow") == f"{SENT_BYTES} slowly"
    assert {name: text.removesuffix(" slowly") for name, text in found.items()} == {
        "whole": f"{SENT_BYTES}",
        "another cut": f"{SENT_BYTES}",
        "incoming cut": "TimeoutError",
        "healed": f"{SENT_BYTES}",
        "outgoing cut": "TimeoutError",
        "reset": "ConnectionRefusedError",
        "left": "0",
    }
