"""Ports that are held before a server listens on them."""

import socket

import pytest

from ariane.errors import ListenFailed
from ariane.transport.reserved_ports import PortSet, reserved_ports

HOST = "127.0.0.1"


def test_a_free_set_is_held_until_it_is_released() -> None:
    with reserved_ports(PortSet(HOST, 0).with_distance(-2, "two below").with_distance(1, "one above")) as held:
        for port in (held.port - 2, held.port, held.port + 1):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((HOST, port))
        held.release()
        for port in (held.port - 2, held.port, held.port + 1):
            with socket.socket() as other:
                other.bind((HOST, port))


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
