"""Two ends of a connection of a group without sockets, and what their tests need."""

import msgspec

from ariane.replication.epochs import EpochMap
from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.link.follower_end import Arrivals, FollowerEnd
from ariane.replication.group.link.introduction import GroupMember
from ariane.replication.group.link.leader_end import LeaderEnd, Received
from ariane.replication.group.link.outbox import StateOutbox
from tests.replication.group.link.test_state import EVERYTHING

FILE_SIZE = 1024
SECRET = b"a secret of the cluster"
MASTER = GroupMember(
    cluster="c", group="b", file_size=FILE_SIZE, member=1, incarnation="run-1", store_id="disk-1", sync_flush=False
)
SLAVE = msgspec.structs.replace(MASTER, member=2, incarnation="run-2", store_id="disk-2")
EPOCHS = EpochMap.of(((1, 0), (3, 500)))
CONNECT = do.Connect(7, "host:1", 3, 0, 700, EPOCHS)
WELCOME = do.Welcome(5, 3, 0, 2_000, EPOCHS, 700)


def received_by(end: FollowerEnd, data: bytes, size: int = 1 << 20) -> Arrivals:
    """In pieces of at most this size; bodies are copied, because the buffer is used again."""
    arrivals, send, closed = [], b"", None
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        while piece and closed is None:
            room = end.get_buffer()
            count = min(len(room), len(piece))
            room[:count], piece = piece[:count], piece[count:]
            part = end.buffer_updated(count)
            arrivals += [arrival._replace(body=memoryview(bytes(arrival.body))) for arrival in part.arrivals]
            send, closed = send + part.send, part.closed
    return Arrivals(arrivals, send, closed)


def fed_to(end: LeaderEnd, data: bytes, size: int = 1 << 20) -> Received:
    events, send, closed = [], b"", None
    for at in range(0, len(data), size):
        part = end.feed(data[at : at + size])
        events += part.events
        send, closed = send + part.send, closed or part.closed
    return Received(events, send, closed)


def introduced(
    *,
    connect: do.Connect = CONNECT,
    slave: GroupMember = SLAVE,
    secrets: tuple[bytes | None, bytes | None] = (SECRET, SECRET),
    size: int = 1 << 20,
) -> tuple[LeaderEnd, FollowerEnd, Received]:
    """Up to the slave's proof: what the master makes of it."""
    leader = LeaderEnd(5, MASTER, secrets[0])
    follower = FollowerEnd(connect, slave, MASTER.incarnation, secrets[1])
    challenge = fed_to(leader, follower.begin(), size)
    assert not challenge.events
    if challenge.closed is not None:
        return leader, follower, challenge
    proof = received_by(follower, challenge.send, size)
    assert not [arrival for arrival in proof.arrivals if not isinstance(arrival.event, on.LinkLost)]
    if proof.closed is not None:
        return leader, follower, Received([], b"", proof.closed)
    return leader, follower, fed_to(leader, proof.send, size)


def streaming() -> tuple[LeaderEnd, FollowerEnd, StateOutbox]:
    """With a stream from 700 on, and everything beside the log sent."""
    leader, follower, _ = introduced()
    outbox = StateOutbox()
    data = leader.welcome(WELCOME) + leader.state(outbox.full(EVERYTHING, 600), 650)
    assert received_by(follower, data).closed is None
    return leader, follower, outbox
