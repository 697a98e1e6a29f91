"""A network for servers under test: a namespace each on one bridge, with links that can be cut, reset and slowed down.

    this process ── bridge ─┬─ veth ── master    198.18.0.1
      198.18.0.254          ├─ veth ── slave-1   198.18.0.2
                            └─ ...

`Namespaces.open()` moves this process to a network namespace of its own, so that the machine's network is never
touched: bridge and links vanish with the process, or when the body of `open` ends. It needs root, and the commands ip,
iptables and tc. `Loopback` has nodes of the same kind without faults of the network, and needs nothing.
"""

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.power_cut import NotAllowed, run

_CLONE_NEWNET = 0x40000000
_COMMANDS = ("ip", "iptables", "tc")
_NAMES = Path("/run/netns")
_BRIDGE = "bridge"
_PREFIX = "198.18.0."  # for tests of networks (RFC 2544)
_NODES_MAX = 200


@dataclass(frozen=True, slots=True)
class Node:
    """Where one server runs."""

    name: str
    host: str
    prefix: tuple[str, ...] = ()
    """What a command line begins with, to run there."""


class Loopback:
    """All nodes are this machine."""

    host = "127.0.0.1"

    def node(self, name: str) -> Node:
        return Node(name, self.host)


class Namespaces:
    """Every method blocks for some 50 ms."""

    host = f"{_PREFIX}254"
    """Of this process."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._links: dict[str, str] = {}

    @classmethod
    @contextmanager
    def open(cls) -> Iterator["Namespaces"]:
        """NotAllowed says what is missing. Once in a process, before it has other threads."""
        missing = [name for name in _COMMANDS if shutil.which(name) is None]
        if os.geteuid() != 0 or missing:
            raise NotAllowed(
                "network namespaces need root" + f", and the commands {', '.join(missing)}" * bool(missing)
            )
        _remove_left_over()
        _leave_the_machines_network()
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", _BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{cls.host}/24", "dev", _BRIDGE)
        run("ip", "link", "set", _BRIDGE, "up")
        network = cls(f"ariane-{os.getpid()}-")
        try:
            yield network
        finally:
            for name in network._links:
                run("ip", "netns", "delete", network._prefix + name)
            run("ip", "link", "delete", _BRIDGE)

    def node(self, name: str) -> Node:
        """A new node, or the one of this name."""
        if name not in self._links:
            number = len(self._links) + 1
            assert number <= _NODES_MAX, "one byte of the address"
            self._links[name] = link = f"link-{number}"
            space = self._prefix + name
            run("ip", "netns", "add", space)
            run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            run("ip", "link", "set", link, "master", _BRIDGE, "up")
            run("ip", "-n", space, "address", "add", f"{_PREFIX}{number}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")
            run("ip", "-n", space, "link", "set", "lo", "up")
        number = int(self._links[name].rpartition("-")[2])
        return Node(name, f"{_PREFIX}{number}", ("ip", "netns", "exec", self._prefix + name))

    # --- faults -----------------------------------------------------------------------------------------------------

    def drop(self, node: Node, peers: list[str], *, incoming: bool = True, outgoing: bool = True) -> None:
        """Drops what the node gets from these addresses, or sends to them, or both."""
        for peer in peers:
            if incoming:
                self._rule(node, "INPUT", "--source", peer, "--jump", "DROP")
            if outgoing:
                self._rule(node, "OUTPUT", "--destination", peer, "--jump", "DROP")

    def reset(self, node: Node, peers: list[str]) -> None:
        """Answers every TCP segment between the node and these addresses with a reset, at both ends."""
        reject = ("--jump", "REJECT", "--reject-with", "tcp-reset")
        for peer in peers:
            self._rule(node, "INPUT", "--source", peer, "--protocol", "tcp", *reject)
            others = ("--protocol", "tcp", "!", "--tcp-flags", "RST", "RST")  # the resets of the other rule pass
            self._rule(node, "OUTPUT", "--destination", peer, *others, *reject)

    def slow_down(self, node: Node, kbit_s: int) -> None:
        """What the node gets is no faster than that."""
        shape = ("rate", f"{kbit_s}kbit", "burst", "64kb", "latency", "1s")
        run("tc", "qdisc", "replace", "dev", self._links[node.name], "root", "tbf", *shape)

    def heal(self, node: Node) -> None:
        """Ends all of these."""
        run(*node.prefix, "iptables", "--flush")
        if "tbf" in run("tc", "qdisc", "show", "dev", self._links[node.name]):
            run("tc", "qdisc", "delete", "dev", self._links[node.name], "root")

    def _rule(self, node: Node, chain: str, *rule: str) -> None:
        run(*node.prefix, "iptables", "--append", chain, *rule)


def _leave_the_machines_network() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise NotAllowed(f"no network namespace of its own: {os.strerror(ctypes.get_errno())}")


def _remove_left_over() -> None:
    """Namespaces with a name outlive a process that was killed."""
    for path in _NAMES.glob("ariane-*-*"):
        if not Path(f"/proc/{path.name.split('-')[1]}").exists():
            run("ip", "netns", "delete", path.name)
