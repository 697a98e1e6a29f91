"""Ports that are held before a server listens on them."""

import errno
import socket

import pytest

from ariane.errors import ListenFailed
from ariane.transport.reserved_ports import PortSet, reserved_ports

HOST = "127.0.0.1"


def test_a_free_set_is_held_until_it_is_released() -> None:
    assert any(are_free_after_release() for _ in range(5))


def are_free_after_release() -> bool:
    """False when another program took one of the ports as soon as it was free: ports of tests come and go."""
    with reserved_ports(PortSet(HOST, 0).with_distance(-2, "two below").with_distance(1, "one above")) as held:
        ports = held.port - 2, held.port, held.port + 1
        assert not any(map(is_free, ports))
        held.release()
        return all(map(is_free, ports))


def is_free(port: int) -> bool:
    with socket.socket() as other:
        try:
            other.bind((HOST, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def test_a_port_in_use_is_named_with_its_purpose() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ListenFailed, match="where slaves connect"),
            reserved_ports(PortSet(HOST, 0).with_port(port, "where slaves connect")),
        ):
            pass
        with pytest.raises(ListenFailed, match=f"{HOST}:{port}"), reserved_ports(PortSet(HOST, port)):
            pass
