"""Access control on the fast path: the same verdicts, responses and stored bytes as on the general path."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ariane.broker.acl.guard import AccessControl
from ariane.clock import Clock
from ariane.model.topic import TopicConfig
from ariane.rpc.signing import Signer
from ariane.settings import Secret
from ariane.store.disk import RealDisk
from ariane.wire.codes import ResponseCode, Serialization
from ariane.wire.exchange import request_command
from ariane.wire.fields import Request
from ariane.wire.frame import encode_frame
from ariane.wire.requests.pull import Pull
from ariane.wire.signature import content_to_sign, sign
from tests.broker.in_process_broker import TOPIC, a_pull, a_send
from tests.broker.send.test_fast_path import COMMON, FakeConnection, connection_to
from tests.broker.send.test_fast_path_batch import a_batch, even

SECRET_TOPIC = "salaries"
FILE = f"""
globalWhiteRemoteAddresses: [10.9.9.*]
accounts:
- accessKey: shop-key
  secretKey: secret-of-shop-key
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [{TOPIC}=PUB|SUB]
- accessKey: reader-key
  secretKey: secret-of-reader-key
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
- accessKey: closed-key
  secretKey: secret-of-closed-key
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
- accessKey: neighbour
  secretKey: secret-of-neighbour
  whiteRemoteAddress: 10.8.8.8
- accessKey: root-key
  secretKey: secret-of-root-key
  admin: true
"""
KEYS = ("shop-key", "reader-key", "closed-key", "neighbour", "root-key")
PEERS = ("192.0.2.7:50000", "10.9.9.1:50000", "10.8.8.8:50000")
REQUESTS: tuple[Request[Any], ...] = (
    a_send(b"one", COMMON),
    a_send(b"two", COMMON, topic=SECRET_TOPIC),
    a_send(b"three", COMMON + "TIMER_DELAY_SEC\x011\x02"),
    a_batch(*even(4)),
    a_pull(),
    a_pull(topic=SECRET_TOPIC),
)


class Frame(NamedTuple):
    request: Request[Any]
    key: str | None
    """Who signs; None: nobody."""
    change: str
    kind: Serialization = Serialization.JSON


def encoded(frame: Frame, opaque: int) -> bytes:
    command = request_command(frame.request, opaque=opaque, serialization=frame.kind)
    if frame.key is not None:
        ext = command.ext | {"AccessKey": "stranger" if frame.change == "other key" else frame.key}
        secret = "another" if frame.change == "other secret" else f"secret-of-{frame.key}"
        signature = sign(secret, content_to_sign(ext, command.body, with_unique_key_query=False))
        command.ext_texts = ext | {"Signature": signature[1:] if frame.change == "cut signature" else signature}
        if frame.change == "other field":
            command.ext_texts = {name: "9" if value == "0" else value for name, value in command.ext_texts.items()}
        if frame.change == "no signature":
            del command.ext_texts["Signature"]
        if frame.change == "unsigned field":
            command.ext_texts["SecurityToken"] = "token"
    if frame.change == "other body":
        command.body = command.body[:-1] + b"!"
    data = encode_frame(command)
    if (
        frame.change == "number" and frame.kind is Serialization.JSON
    ):  # as text when it is signed, as a number in the header
        header = data[8 : 8 + int.from_bytes(data[5:8], "big")]
        changed = header.replace(b'"f":"0"', b'"f":0')
        data = (4 + len(changed) + len(command.body)).to_bytes(4, "big") + len(changed).to_bytes(4, "big")
        data += changed + command.body
    return data


CHANGES = ("other key", "other secret", "cut signature", "no signature", "other field", "unsigned field", "other body")
frames = st.builds(
    Frame,
    request=st.sampled_from(REQUESTS),
    key=st.sampled_from([*["shop-key"] * 6, *KEYS, None]),
    change=st.sampled_from([*[""] * 12, *CHANGES, "number"]),
    kind=st.sampled_from(Serialization),
)
white_lists = st.sampled_from([None] * 4 + [["10.9.9.*"], ["192.0.2.*"]])


def access_in(path: Path) -> AccessControl:
    path.mkdir()
    (path / "plain_acl.yml").write_text(FILE)
    return AccessControl(RealDisk(), path / "plain_acl.yml", Clock())


async def opened(stack: AsyncExitStack, path: Path, *, fast_path: bool) -> tuple[FakeConnection, AccessControl]:
    access = access_in(path)
    sender = await stack.enter_async_context(connection_to(path, fast_path=fast_path, access=access))
    sender.broker.topics.put(TopicConfig(topic_name=SECRET_TOPIC))
    return sender, access


def test_every_frame_gets_the_verdict_of_the_general_path(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def both() -> list[tuple[FakeConnection, AccessControl]]:
            return [await opened(stack, tmp_path / name, fast_path=name == "fast") for name in ("fast", "general")]

        (fast, fast_access), (general, general_access) = runner.run(both())

        @settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
        @given(chunk=st.lists(frames, max_size=8), peer=st.sampled_from(PEERS), white_list=white_lists)
        @example(chunk=[Frame(REQUESTS[0], "shop-key", "")] * 20, peer=PEERS[0], white_list=None)
        @example(
            chunk=[Frame(REQUESTS[0], "shop-key", change, kind) for kind in Serialization for change in ("", *CHANGES)],
            peer=PEERS[0],
            white_list=None,
        )
        def check(chunk: list[Frame], peer: str, white_list: list[str] | None) -> None:
            async def compare() -> None:
                if white_list is not None:
                    fast_access.set_white_list(white_list)
                    general_access.set_white_list(white_list)
                # Pulls behind sends in one chunk may not see them yet, so they come in a chunk of their own.
                for are_pulls in (False, True):
                    chosen = [frame for frame in chunk if isinstance(frame.request, Pull) == are_pulls]
                    data = b"".join(encoded(frame, opaque) for opaque, frame in enumerate(chosen, start=1))
                    responses = []
                    for sender in (fast, general):
                        sender.connection.peer = peer
                        responses.append(await sender.feed(data))
                    assert responses[0] == responses[1]
                assert fast.everything_stored() == general.everything_stored()

            runner.run(compare())

        try:
            check()
            assert fast.general < general.general
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize("kind", Serialization)
@pytest.mark.parametrize("request_", [REQUESTS[0], REQUESTS[3], REQUESTS[4]], ids=["send", "batch", "pull"])
async def test_signed_requests_take_the_fast_path(tmp_path: Path, request_: Request[Any], kind: Serialization) -> None:
    async with AsyncExitStack() as stack:
        sender, _ = await opened(stack, tmp_path / "a", fast_path=True)
        await sender.feed(encoded(Frame(REQUESTS[0], "shop-key", ""), 1))
        assert sender.general == 1, "the first send to a topic checks it"
        responses = await sender.feed(
            b"".join(encoded(Frame(request_, "shop-key", "", kind), opaque) for opaque in range(1, 9))
        )
        assert sender.general == 1
        assert [responses[opaque].code for opaque in range(1, 9)] == [0] * 8


async def test_a_permission_that_is_taken_away_holds_for_the_next_frame(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        sender, access = await opened(stack, tmp_path / "a", fast_path=True)
        signed = encoded(Frame(REQUESTS[0], "shop-key", ""), 1)
        assert (await sender.feed(signed))[1].code == 0
        assert access.delete_account("shop-key")
        assert (await sender.feed(signed))[1].code == ResponseCode.NO_PERMISSION


# --- signatures of version 2: used up once, on whichever path ---------------------------------------------------------


class SigningPeer:
    def __init__(self, sender: FakeConnection) -> None:
        self._sender = sender
        self._signer = Signer("shop-key", Secret("secret-of-shop-key"), Clock().now_ms)

    async def learn(self) -> None:
        """The first request asks for the challenge."""
        command = request_command(REQUESTS[0], opaque=1)
        self._signer.sign(command, self)
        (response,) = (await self._sender.feed(encode_frame(command))).values()
        assert response.code == ResponseCode.NO_PERMISSION
        assert self._signer.learn(self, command, response)

    def frame(self, request: Request[Any], opaque: int, kind: Serialization = Serialization.JSON) -> bytes:
        command = request_command(request, opaque=opaque, serialization=kind)
        self._signer.sign(command, self)
        return encode_frame(command)


@pytest.mark.parametrize("kind", Serialization)
@pytest.mark.parametrize("request_", [REQUESTS[0], REQUESTS[3], REQUESTS[4]], ids=["send", "batch", "pull"])
async def test_requests_signed_with_version_2_take_the_fast_path_once(
    tmp_path: Path, request_: Request[Any], kind: Serialization
) -> None:
    async with AsyncExitStack() as stack:
        sender, access = await opened(stack, tmp_path / "a", fast_path=True)
        peer = SigningPeer(sender)
        await peer.learn()
        assert (await sender.feed(peer.frame(REQUESTS[0], 1)))[1].code == 0, "the first send to a topic checks it"
        general = sender.general
        frames = [peer.frame(request_, opaque, kind) for opaque in range(1, 9)]
        responses = await sender.feed(b"".join(frames))
        assert sender.general == general
        assert [responses[opaque].code for opaque in range(1, 9)] == [0] * 8
        stored = sender.everything_stored()
        again = await sender.feed(b"".join(frames))
        assert [again[opaque].code for opaque in range(1, 9)] == [ResponseCode.NO_PERMISSION] * 8
        assert sender.everything_stored() == stored
        assert access.signatures.replays == 8


async def test_a_frame_that_the_fast_path_leaves_is_admitted_once(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        sender, _ = await opened(stack, tmp_path / "a", fast_path=True)
        peer = SigningPeer(sender)
        await peer.learn()
        await sender.feed(peer.frame(REQUESTS[0], 1))
        delayed = [peer.frame(REQUESTS[2], opaque) for opaque in (1, 2)]  # verified, then left to the general path
        plain = peer.frame(REQUESTS[0], 3)
        responses = await sender.feed(delayed[0] + delayed[1] + plain)
        assert [responses[opaque].code for opaque in (1, 2, 3)] == [0, 0, 0]
        for frame in (*delayed, plain):
            ((_, response),) = (await sender.feed(frame)).items()
            assert response.code == ResponseCode.NO_PERMISSION
        (response,) = (await sender.feed(peer.frame(REQUESTS[0], 1))).values()
        assert response.code == 0
