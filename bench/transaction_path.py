"""CPU of transactions inside the broker, without sockets, beside a plain send of the same size.

    python -m bench.transaction_path [--chunk 16] [--body 1024] [--binary] [--answered] [--profile commit]

As bench.send_path: the broker is whole, only the network is left out. Outcomes are one-way, as Java's producer sends
them, unless --answered. A commit reads one record and writes two.
"""

import argparse
import asyncio
import cProfile
import pstats
import time
from functools import partial
from pathlib import Path
from typing import Any

from ariane.broker.server import Broker
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.wire.codes import Serialization
from ariane.wire.exchange import request_command
from ariane.wire.fields import Request
from ariane.wire.frame import Command, FrameDecoder, encode_frame
from ariane.wire.properties import encode_properties
from ariane.wire.requests.send import Decision, EndTransaction, SendMessageV2
from bench.in_process import Nowhere, broker_on, connection_to, on_a_store

TOPIC, GROUP = "transactions", "payers"
ROUNDS, ROUND_MESSAGES = 400, 64
"""A producer of 64 threads has so many transactions open: outcomes come soon after their half messages."""


class TransactionClient:
    """A broker's connection that is fed with chunks, and what each kind of request cost at best."""

    def __init__(self, broker: Broker, chosen: argparse.Namespace) -> None:
        self._transport = Nowhere()
        self._connection = connection_to(broker, self._transport)
        self._chosen = chosen
        self.profile = cProfile.Profile()
        self.best_us: dict[str, float] = {}

    async def feed(self, name: str, requests: list[Request[Any]], *, oneway: bool = False) -> list[Command]:
        """The answers to `asks`, in their order; all of them must be successes."""
        kind = Serialization.BINARY if self._chosen.binary else Serialization.JSON
        frames = [
            encode_frame(request_command(request, opaque=n, oneway=oneway, serialization=kind))
            for n, request in enumerate(requests)
        ]
        step = self._chosen.chunk
        chunks = [b"".join(frames[at : at + step]) for at in range(0, len(frames), step)]
        if self._chosen.profile == name:
            self.profile.enable()
        began = time.thread_time()
        for chunk in chunks:
            self._connection.data_received(chunk)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        spent_us = (time.thread_time() - began) / len(requests) * 1e6
        self.profile.disable()
        for _ in range(8):  # a connection whose requests took their time goes on in the next iteration
            await asyncio.sleep(0)
        self.best_us[name] = min(spent_us, self.best_us.get(name, spent_us))
        responses = self._answers()
        assert len(responses) == (0 if oneway else len(requests)), (
            f"{len(responses)} answers to {len(requests)} requests"
        )
        return responses

    def _answers(self) -> list[Command]:
        decoder = FrameDecoder()
        decoder.feed(b"".join(self._transport.written))
        self._transport.written.clear()
        responses = sorted(decoder, key=lambda command: command.opaque)
        assert all(response.code == 0 for response in responses), "a refusal is no measure"
        return responses


def sends(number: int, body: bytes, *, is_half: bool) -> list[Request[Any]]:
    properties = {"WAIT": "true", "TAGS": "a"} | ({"TRAN_MSG": "true", "PGROUP": GROUP} if is_half else {})
    return [
        SendMessageV2(
            producer_group=GROUP,
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=key % 4,
            sys_flag=4 if is_half else 0,
            born_timestamp=1_700_000_000_000,
            flag=0,
            properties=encode_properties(properties | {"UNIQ_KEY": f"7F000001{key:024X}"}).decode(),
            body=body,
        )
        for key in range(number, number + ROUND_MESSAGES)
    ]


def ends(responses: list[Command], decision: Decision) -> list[Request[Any]]:
    return [
        EndTransaction(
            producer_group=GROUP,
            tran_state_table_offset=QueueOffset(int(response.ext["queueOffset"])),
            commit_log_offset=PhysicalOffset(int(response.ext["msgId"][-16:], 16)),
            commit_or_rollback=int(decision),
            msg_id=response.ext["transactionId"],
        )
        for response in responses
    ]


async def measure(chosen: argparse.Namespace, root: Path) -> None:
    async with broker_on(root) as broker:
        broker.parts.topics.ensure(TOPIC, 4)
        await broker.parts.topics.saved()  # sends wait for it
        client, body, oneway = TransactionClient(broker, chosen), bytes(chosen.body), not chosen.answered
        for number in range(0, ROUNDS * 4 * ROUND_MESSAGES, 4 * ROUND_MESSAGES):
            await client.feed("plain", sends(number, body, is_half=False))
            for place, decision in enumerate((Decision.COMMIT, Decision.ROLLBACK), start=1):
                half_messages = await client.feed("half", sends(number + place * ROUND_MESSAGES, body, is_half=True))
                await client.feed(decision.name.lower(), ends(half_messages, decision), oneway=oneway)
            await asyncio.sleep(0.003)  # the index and the queues are written in the meantime, as in a running broker
    plain = client.best_us["plain"]
    for name, best_us in client.best_us.items():
        print(f"{name:10} {best_us:6.1f} us  {best_us / plain:4.1f} x a plain send, chunks of {chosen.chunk}")
    if chosen.profile:
        pstats.Stats(client.profile).strip_dirs().sort_stats("tottime").print_stats(40)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--chunk", type=int, default=16, help="requests in one read")
    options.add_argument("--body", type=int, default=1024)
    options.add_argument("--binary", action="store_true", help="binary headers")
    options.add_argument("--answered", action="store_true", help="outcomes want an answer, as those of C++ clients")
    options.add_argument("--profile", choices=("plain", "half", "commit", "rollback"))
    on_a_store(partial(measure, options.parse_args()))


if __name__ == "__main__":
    main()
