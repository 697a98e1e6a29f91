"""The blocking connection against a real server and against peers that misbehave."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ariane.errors import CallTimeout, ConnectFailed, ConnectionLost, FrameError
from ariane.transport.blocking import BlockingConnection
from ariane.wire.codes import HeaderFlag
from ariane.wire.frame import Command, FrameDecoder, encode_frame


@contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener whose first connection is handed to `serve`, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def requests_of(connection: socket.socket, count: int) -> list[Command]:
    decoder, got = FrameDecoder(), list[Command]()
    while len(got) < count:
        decoder.feed(connection.recv(65536))
        got.extend(decoder)
    return got


def response(request: Command, body: bytes = b"") -> bytes:
    return encode_frame(Command(code=0, opaque=request.opaque, flag=HeaderFlag.RESPONSE, body=body or request.body))


def test_answers_come_in_the_order_of_the_questions_whatever_their_own() -> None:
    def backwards(connection: socket.socket) -> None:
        for request in reversed(requests_of(connection, 3)):
            connection.sendall(response(request))

    with peer(backwards) as address:
        connection = BlockingConnection.open(address)
        responses = connection.call_all([Command(code=1, body=b"%d" % number) for number in range(3)])
        assert [one.body for one in responses] == [b"0", b"1", b"2"]
        connection.close()


def test_answers_that_come_before_their_turn_are_kept_until_they_are_taken() -> None:
    """A broker that has to fetch what the first of some pulls asks for answers the others before it."""

    def first_one_last(connection: socket.socket) -> None:
        first, *others = requests_of(connection, 3)
        for request in (*others, first):
            connection.sendall(response(request))

    with peer(first_one_last) as address:
        connection = BlockingConnection.open(address)
        opaques = connection.post_all([Command(code=1, body=b"%d" % number) for number in range(3)])
        assert [connection.take([opaque], timeout_s=30)[0].body for opaque in opaques] == [b"0", b"1", b"2"]
        connection.close()


def test_answers_that_have_come_are_taken_together_up_to_the_first_that_is_missing() -> None:
    def without_the_third(connection: socket.socket) -> None:
        first, second, third, fourth = requests_of(connection, 4)
        connection.sendall(b"".join(map(response, (fourth, second, first))))
        requests_of(connection, 1)
        connection.sendall(response(third))

    with peer(without_the_third) as address:
        connection = BlockingConnection.open(address)
        opaques = connection.opaques(4)
        asks = [Command(code=1, opaque=opaque, body=b"%d" % opaque) for opaque in opaques]
        connection.post_frames(opaques, list(map(encode_frame, asks)))
        taken = connection.take_arrived(opaques, timeout_s=30)
        assert [bytes(one.body.view) for one in taken] == [b"%d" % opaque for opaque in opaques[:2]]
        connection.post(Command(code=1))
        rest = connection.take_arrived(opaques[2:], timeout_s=30)
        assert [bytes(one.body.view) for one in rest] == [b"%d" % opaque for opaque in opaques[2:]]
        connection.close()


def test_the_answer_to_a_request_that_was_forgotten_is_dropped() -> None:
    def serve(connection: socket.socket) -> None:
        for request in requests_of(connection, 2):
            connection.sendall(response(request))

    with peer(serve) as address:
        connection = BlockingConnection.open(address)
        forgotten, wanted = connection.post_all([Command(code=1, body=b"forgotten"), Command(code=1, body=b"wanted")])
        connection.forget([forgotten])
        assert connection.take([wanted], timeout_s=30)[0].body == b"wanted"
        with pytest.raises(ConnectionLost):
            connection.take([forgotten], timeout_s=30)


def test_requests_of_the_peer_are_passed_over() -> None:
    def serve(connection: socket.socket) -> None:
        (asked,) = requests_of(connection, 1)
        connection.sendall(encode_frame(Command(code=40, opaque=asked.opaque)) + response(asked, b"right"))

    with peer(serve) as address:
        connection = BlockingConnection.open(address)
        assert connection.call(Command(code=1)).body == b"right"
        connection.close()


def test_a_silent_peer_is_a_timeout_and_the_connection_is_closed() -> None:
    done = threading.Event()

    def stay_silent(connection: socket.socket) -> None:
        done.wait()

    with peer(stay_silent) as address:
        connection = BlockingConnection.open(address)
        with pytest.raises(CallTimeout, match="outcome is unknown"):
            connection.call(Command(code=1), timeout_s=0.05)
        assert not connection.is_open
        with pytest.raises(ConnectionLost, match="is closed"):
            connection.call(Command(code=1))
        done.set()


def test_a_peer_that_hangs_up_is_a_lost_connection() -> None:
    def hang_up(connection: socket.socket) -> None:
        requests_of(connection, 1)

    with peer(hang_up) as address:
        with pytest.raises(ConnectionLost):
            BlockingConnection.open(address).call(Command(code=1))


def test_bytes_that_are_no_frame_close_the_connection() -> None:
    def gibberish(connection: socket.socket) -> None:
        requests_of(connection, 1)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with peer(gibberish) as address:
        connection = BlockingConnection.open(address)
        with pytest.raises(FrameError):
            connection.call(Command(code=1))
        assert not connection.is_open


def test_nobody_listening_is_told_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ConnectFailed, match=address):
        BlockingConnection.open(address)


def test_an_address_without_a_port_is_told_as_such() -> None:
    with pytest.raises(ConnectFailed, match="HOST:PORT expected"):
        BlockingConnection.open("localhost")
