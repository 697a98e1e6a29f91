"""CPU of a send inside the broker, without sockets: chunks of frames into a connection, answers into nothing.

    python -m bench.send_path [--chunk 16] [--turn 1] [--connections 1] [--body 1024] [--batch 32] [--binary]
                              [--uneven] [--delay 3] [--signed no|apache|v2]

    --batch 500 --chunk 1                                       a client that waits for each of its large batches
    --batch 32 --body 100 --chunk 4 --connections 16 --turn 16  many clients, each with few batches in flight

The broker is whole, with store, index and counters; only the kernel's part of the network is left out, so the figures
hold on a busy machine, too. --profile shows where the time goes: shares, not microseconds, for profiling slows calls.
"""

import argparse
import asyncio
import cProfile
import pstats
import time
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from pathlib import Path

from ariane.clock import Clock
from ariane.rpc.signing import Signer
from ariane.settings import Secret
from ariane.transport.connection import Connection
from ariane.wire.exchange import request_command
from ariane.wire.frame import FrameDecoder, encode_frame
from ariane.wire.properties import encode_properties
from ariane.wire.record.batch import BatchItem, encode_batch
from ariane.wire.requests.offsets import GetMaxOffset
from ariane.wire.requests.send import SendBatch
from bench.in_process import Nowhere, broker_on, connections_to, on_a_store
from bench.load.names import PRODUCER_GROUP, topic_name
from bench.load.plan import Kind, LoadPlan, Serialization, Wire
from bench.load.ring import Ring
from bench.load.rocketmq import OPAQUE_FIRST, body_of
from bench.load.wires import response_reader, ring_of
from bench.systems.broker_files import write_topics
from bench.systems.system import Setup

ROUNDS, ROUND_MESSAGES = 12, 8_192
ACCESS_KEY, SECRET = "bench-account", Secret("secret-of-the-bench")
READ_BYTES = 256_000  # of uvloop


async def measure(chosen: argparse.Namespace, root: Path) -> None:
    write_topics(root, Setup())
    accounts = None if chosen.signed == "no" else write_accounts(root.parent)
    async with broker_on(root, accounts) as broker:
        transport = Nowhere()
        connections = connections_to(broker, transport, chosen.connections)
        signer = Signer(ACCESS_KEY, SECRET, Clock().now_ms)
        for connection in connections:
            introduce(signer, connection, transport, challenged=chosen.signed == "v2")
        plan = plan_of(chosen)
        requests = ROUND_MESSAGES // chosen.batch // chosen.chunk * chosen.chunk
        best_us = float("inf")
        profile = cProfile.Profile()
        ring = ring_of(plan)
        for number in range(ROUNDS):
            uneven = uneven_chunks_of(plan, requests, chosen.chunk)
            chunks = list(uneven if chosen.uneven else chunks_of(ring, requests, chosen.chunk))
            if accounts is not None:
                chunks = signed_chunks(signer, connections, chunks)
            if chosen.profile and number:
                profile.enable()
            spent_s = await feed(connections, chunks, chosen.turn)
            profile.disable()
            best_us = min(best_us, spent_s / requests / chosen.batch * 1e6)
            check(plan, transport, requests)
            await asyncio.sleep(0.05)  # the index and the queues are written in the meantime, as in a running broker
    headers = ("binary" if chosen.binary else "JSON") + (f", delay level {chosen.delay}" if chosen.delay else "")
    came = f"{headers}, chunks of {chosen.chunk}, {chosen.turn} a turn to {chosen.connections} connections"
    signed = "" if accounts is None else f", signed ({chosen.signed})"
    print(f"{best_us:.2f} us a message: {chosen.batch} x {chosen.body} B, {came}{signed}; best of {ROUNDS}")
    if chosen.profile:
        pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(40)


def plan_of(chosen: argparse.Namespace) -> LoadPlan:
    return LoadPlan(
        wire=Wire.ROCKETMQ,
        kind=Kind.BATCH if chosen.batch > 1 else Kind.SEND,
        addresses=(),
        connections=1,
        in_flight=chosen.chunk,
        body_bytes=chosen.body,
        messages_a_request=chosen.batch,
        serialization=Serialization.BINARY if chosen.binary else Serialization.JSON,
        delay_level=chosen.delay,
    )


def chunks_of(ring: Ring, requests: int, chunk: int) -> Iterator[bytes]:
    for _ in range(0, requests, chunk):
        yield b"".join(bytes(piece.data) for piece in ring.take(chunk))


def uneven_chunks_of(plan: LoadPlan, requests: int, chunk: int) -> Iterator[bytes]:
    """Batches of messages whose bodies have all lengths between half and one and a half of what is asked for."""
    for begin in range(0, requests, chunk):
        yield b"".join(_uneven_batch(plan, number) for number in range(begin, begin + chunk))


def _uneven_batch(plan: LoadPlan, number: int) -> bytes:
    sizes = [plan.body_bytes // 2 + (number + 37 * place) % plan.body_bytes for place in range(plan.messages_a_request)]
    numbers = (number * len(sizes) + place for place in range(len(sizes)))
    request = SendBatch(
        producer_group=PRODUCER_GROUP,
        topic=topic_name(0),
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=number % plan.queues,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="WAIT\x01true\x02",
        batch=True,
        body=encode_batch(map(_uneven_item, numbers, sizes)),
    )
    return encode_frame(request_command(request, opaque=OPAQUE_FIRST + number))


def _uneven_item(number: int, size: int) -> BatchItem:
    names = {"KEYS": f"order-{number}", "UNIQ_KEY": f"7F00000100A118B4AAC2{number:08d}", "WAIT": "true", "TAGS": "paid"}
    return BatchItem(body_of(size), encode_properties(names))


def write_accounts(directory: Path) -> Path:
    """One account, as an application has it, with a permission on the topic."""
    path = directory / "plain_acl.yml"
    account = f"accessKey: {ACCESS_KEY}, secretKey: {SECRET.reveal()}, topicPerms: [{topic_name(0)}=PUB]"
    path.write_text(f"accounts: [{{{account}}}]")
    return path


def introduce(signer: Signer, connection: Connection, transport: Nowhere, *, challenged: bool) -> None:
    """Lets the signer know which signature this connection needs, from the refusal of a request without one."""
    request = request_command(GetMaxOffset(topic_name(0), 0), opaque=1)
    signer.sign(request, connection)
    connection.data_received(encode_frame(request))
    refusals = FrameDecoder()
    refusals.feed(b"".join(transport.written))
    transport.written.clear()
    for refusal in refusals:
        if not challenged:  # as a server of Apache refuses
            refusal.ext_texts = {}
        signer.learn(connection, request, refusal)


def signed_chunks(signer: Signer, connections: list[Connection], chunks: list[bytes]) -> list[bytes]:
    """The same chunks, each request signed for the connection that it goes to."""
    signed = []
    for connection, chunk in zip(cycle(connections), chunks, strict=False):
        commands = FrameDecoder()
        commands.feed(chunk)
        frames = []
        for command in commands:
            signer.sign(command, connection)
            frames.append(encode_frame(command))
        signed.append(b"".join(frames))
    return signed


async def feed(connections: list[Connection], chunks: list[bytes], turn: int) -> float:
    """The connections' chunks in turn; those that are larger than what a socket gives at once come in pieces."""
    reads = [[chunk[at : at + READ_BYTES] for at in range(0, len(chunk), READ_BYTES)] for chunk in chunks]
    began = time.process_time()
    for number, (connection, pieces) in enumerate(zip(cycle(connections), reads, strict=False), start=1):
        for piece in pieces:
            connection.data_received(piece)
        if number % turn == 0:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    return time.process_time() - began


def check(plan: LoadPlan, transport: Nowhere, requests: int) -> None:
    """Every send was taken, or the figure would be that of refusals."""
    responses = response_reader(plan)
    answered = len(responses.feed(b"".join(transport.written)))
    assert answered == requests, f"{answered} answers to {requests} requests"
    assert not responses.refused, responses.first_error
    transport.written.clear()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--chunk", type=int, default=16, help="requests in one read")
    options.add_argument("--turn", type=int, default=1, help="reads in one event-loop iteration")
    options.add_argument("--connections", type=int, default=1, help="to which the reads come in turn")
    options.add_argument("--body", type=int, default=1024)
    options.add_argument("--batch", type=int, default=1, help="messages in one request")
    options.add_argument("--binary", action="store_true", help="binary headers instead of JSON ones")
    options.add_argument("--uneven", action="store_true", help="batches of messages of unequal lengths")
    options.add_argument("--delay", type=int, default=0, help="the level of a delay, for single sends")
    options.add_argument("--signed", choices=["no", "apache", "v2"], default="no", help="with access control")
    options.add_argument("--profile", action="store_true")
    on_a_store(partial(measure, options.parse_args()))


if __name__ == "__main__":
    main()
