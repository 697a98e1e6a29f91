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
    decoder, requests = FrameDecoder(), list[Command]()
    while len(requests) < count:
        decoder.feed(connection.recv(65536))
        requests.extend(decoder)
    return requests


def response(request: Command, body: bytes = b"") -> bytes:
    return encode_frame(Command(code=0, opaque=request.opaque, flag=HeaderFlag.RESPONSE, body=body or request.body))


def test_responses_are_returned_in_request_order_even_if_they_arrive_in_another() -> None:
    def backwards(connection: socket.socket) -> None:
        for request in reversed(requests_of(connection, 3)):
            connection.sendall(response(request))

    with peer(backwards) as address:
        connection = BlockingConnection.open(address)
        responses = connection.call_all([Command(code=1, body=b"%d" % number) for number in range(3)])
        assert [response.body for response in responses] == [b"0", b"1", b"2"]
        connection.close()


def test_responses_that_arrive_out_of_order_are_kept_until_they_are_received() -> None:
    """A broker that has to read the first of some pulls from disk answers the others before it."""

    def answer_first_last(connection: socket.socket) -> None:
        first, *others = requests_of(connection, 3)
        for request in (*others, first):
            connection.sendall(response(request))

    with peer(answer_first_last) as address:
        connection = BlockingConnection.open(address)
        opaques = connection.send_all([Command(code=1, body=b"%d" % number) for number in range(3)])
        assert [connection.receive([opaque], timeout_s=30)[0].body for opaque in opaques] == [b"0", b"1", b"2"]
        connection.close()


def test_available_responses_are_returned_together_up_to_the_first_missing_one() -> None:
    def without_the_third(connection: socket.socket) -> None:
        first, second, third, fourth = requests_of(connection, 4)
        connection.sendall(b"".join(map(response, (fourth, second, first))))
        requests_of(connection, 1)
        connection.sendall(response(third))

    with peer(without_the_third) as address:
        connection = BlockingConnection.open(address)
        opaques = connection.next_opaques(4)
        requests = [Command(code=1, opaque=opaque, body=b"%d" % opaque) for opaque in opaques]
        connection.send_frames(opaques, list(map(encode_frame, requests)))
        available = connection.receive_available(opaques, timeout_s=30)
        assert [bytes(frame.body.view) for frame in available] == [b"%d" % opaque for opaque in opaques[:2]]
        connection.send(Command(code=1))
        rest = connection.receive_available(opaques[2:], timeout_s=30)
        assert [bytes(frame.body.view) for frame in rest] == [b"%d" % opaque for opaque in opaques[2:]]
        connection.close()


def test_a_discarded_response_is_dropped() -> None:
    def serve(connection: socket.socket) -> None:
        for request in requests_of(connection, 2):
            connection.sendall(response(request))

    with peer(serve) as address:
        connection = BlockingConnection.open(address)
        discarded, expected = connection.send_all(
            [Command(code=1, body=b"discarded"), Command(code=1, body=b"expected")]
        )
        connection.discard([discarded])
        assert connection.receive([expected], timeout_s=30)[0].body == b"expected"
        with pytest.raises(ConnectionLost):
            connection.receive([discarded], timeout_s=30)


def test_requests_from_the_peer_are_ignored() -> None:
    def serve(connection: socket.socket) -> None:
        (request,) = requests_of(connection, 1)
        connection.sendall(encode_frame(Command(code=40, opaque=request.opaque)) + response(request, b"right"))

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


def test_bytes_that_are_not_a_frame_close_the_connection() -> None:
    def gibberish(connection: socket.socket) -> None:
        requests_of(connection, 1)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with peer(gibberish) as address:
        connection = BlockingConnection.open(address)
        with pytest.raises(FrameError):
            connection.call(Command(code=1))
        assert not connection.is_open


def test_a_refused_connection_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ConnectFailed, match=address):
        BlockingConnection.open(address)


def test_an_address_without_a_port_is_an_error_that_says_so() -> None:
    with pytest.raises(ConnectFailed, match="HOST:PORT expected"):
        BlockingConnection.open("localhost")
