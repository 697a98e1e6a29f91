"""A slave's end of the connection to the master of its group: bytes to events, effects to bytes. No I/O.

    begin() ──► challenge, proof ──► Welcomed ──► FrameArrived ... LinkLost          report(), state_applied() ──►
                                └──► refused

`get_buffer` and `buffer_updated` work like asyncio.BufferedProtocol. Handle the arrivals in order, and append each
body, before the next bytes are received: bodies are views of the buffer. After `Arrivals.closed` close the connection.
"""

from collections.abc import Callable
from typing import NamedTuple

from ariane.errors import FrameError
from ariane.replication.frames import (
    MAGIC,
    Frame,
    FrameDecoder,
    HelloDecoder,
    Kind,
    Report,
    ReportKind,
    hello_bytes,
    native_report,
)
from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.link.inbox import StateInbox
from ariane.replication.group.link.introduction import GroupMember, GroupWelcome, check_version, log_of, new_hello
from ariane.replication.hello import Challenge, decoded, is_proof, master_proof, slave_proof

_INTRODUCTION_READ_BYTES = 4096
_GOODBYE_MAX = 200
_NO_BODY = memoryview(b"")


class Arrival(NamedTuple):
    event: on.Welcomed | on.FrameArrived | on.LinkLost
    body: memoryview = _NO_BODY
    """Of the log, for an Append of this frame."""


class Arrivals(NamedTuple):
    arrivals: list[Arrival]
    send: bytes
    closed: str | None
    """Why the connection has to be closed; its LinkLost is the last event."""


class FollowerEnd:
    def __init__(self, connect: do.Connect, me: GroupMember, master_incarnation: str, secret: bytes | None) -> None:
        """`master_incarnation`: the run of the master's process that the record of the group names."""
        self.link = connect.link
        self._connect = connect
        self._me = me
        self._master_incarnation = master_incarnation
        self._secret = secret
        self._message = HelloDecoder()
        self._buffer = bytearray(_INTRODUCTION_READ_BYTES)
        self._expect: Callable[[bytes], None] | None = self._expect_challenge
        """What the next message of the introduction goes to; None when it is over."""
        self._hello, self._challenge = b"", b""
        self._decoder = FrameDecoder(native=True)
        self._arrivals: list[Arrival] = []
        self._send = b""
        self._is_over = False
        self._next: int | None = None
        """Where the next frame has to begin; None while no stream was promised."""
        self.inbox = StateInbox()
        """What the master has beside its log, until it can be applied."""
        self.refused_epoch = 0
        """The group's epoch as a master said it that refused us: if it is not ours, read the record."""

    def begin(self) -> bytes:
        """What to send first."""
        connect = self._connect
        hello = new_hello(self._me, connect.epoch, connect.begin, connect.end, connect.epochs)
        self._hello = hello.to_bytes()
        return MAGIC + hello_bytes(self._hello)

    # --- what the master says ---

    def get_buffer(self) -> memoryview:
        if self._expect is not None or self._is_over:
            return memoryview(self._buffer)
        return self._decoder.get_buffer()

    def buffer_updated(self, count: int) -> Arrivals:
        closed = None
        if not self._is_over:
            try:
                if self._expect is not None:
                    self._introduced(bytes(self._buffer[:count]))
                else:
                    self._decoder.buffer_updated(count)
                    self._take_frames()
            except FrameError as error:
                closed = str(error)
                self._end()
        arrivals, self._arrivals = self._arrivals, []
        send, self._send = self._send, b""
        return Arrivals(arrivals, send, closed)

    def lost(self, *, is_refused: bool = False) -> list[Arrival]:
        """The connection is closed, or could not be made: events to handle, none if they were returned before."""
        self._end(is_refused=is_refused)
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def _end(self, *, is_refused: bool = False) -> None:
        if not self._is_over:
            self._is_over = True
            self._arrivals.append(Arrival(on.LinkLost(self.link, is_refused)))

    def _introduced(self, data: bytes) -> None:
        while self._expect is not None:
            message = self._message.feed(data)
            if message is None:
                return
            data, self._message = self._message.rest, HelloDecoder()
            self._expect(message)
        if data:
            self._decoder.add(data)
            self._take_frames()

    def _expect_challenge(self, message: bytes) -> None:
        check_version(message)
        decoded(Challenge, message)
        self._challenge = message
        self._expect = self._expect_proof

    def _expect_proof(self, proof: bytes) -> None:
        if not is_proof(proof, master_proof(self._secret, self._hello, self._challenge)):
            raise FrameError("the master does not know our secret: set replication.secret_file alike on all members")
        self._send += hello_bytes(slave_proof(self._secret, self._hello, self._challenge))
        self._expect = self._expect_welcome

    def _expect_welcome(self, message: bytes) -> None:
        welcome, connect = decoded(GroupWelcome, message), self._connect
        if welcome.refused is not None:
            self.refused_epoch = welcome.epoch
            raise FrameError(f"the master refuses us: {welcome.refused}")
        epochs = log_of(welcome)
        if welcome.epoch != connect.epoch:
            raise FrameError(f"the master is of epoch {welcome.epoch}, and we follow epoch {connect.epoch}")
        if welcome.incarnation != self._master_incarnation:
            raise FrameError("the master is another run of its process than the one that the group elected")
        if welcome.begin is None:
            point = connect.epochs.consistent_point(connect.end, epochs, welcome.end)
            if point == connect.end and point >= welcome.min:  # below that, the master has deleted what we need
                raise FrameError(f"the master does not go on at {connect.end}, though its log has our history")
        elif welcome.begin != connect.end:
            raise FrameError(f"the master goes on at {welcome.begin}, and our log ends at {connect.end}")
        self._next, self._expect = welcome.begin, None
        self._arrivals.append(
            Arrival(on.Welcomed(self.link, welcome.epoch, welcome.min, welcome.end, epochs)),
        )

    def _take_frames(self) -> None:
        while (frame := self._decoder.next_frame()) is not None:
            self._check(frame)
            body = _NO_BODY
            if frame.kind is Kind.DATA:
                body = frame.body
                self._next = frame.offset + len(body)
            elif frame.kind is Kind.STATE:
                self.inbox.put(frame.body)
            event = on.FrameArrived(self.link, frame.epoch, frame.offset, len(body), frame.confirmed)
            self._arrivals.append(Arrival(event, body))

    def _check(self, frame: Frame) -> None:
        size, file_size = len(frame.body), self._me.file_size
        if self._next is None:
            raise FrameError("a frame without a stream that the welcome promised")
        if frame.epoch != self._connect.epoch:
            raise FrameError(f"a frame of epoch {frame.epoch} in epoch {self._connect.epoch}")
        if frame.offset != self._next:
            raise FrameError(f"a frame for offset {frame.offset}, and the log ends at {self._next}")
        if frame.confirmed < 0:
            raise FrameError(f"{frame.confirmed} is confirmed: not an offset of a log")
        if frame.kind is Kind.GOODBYE:
            raise FrameError(f"the master says goodbye: {str(frame.body, 'utf-8', 'replace')[:_GOODBYE_MAX]}")
        if frame.kind is Kind.HEARTBEAT and size:
            raise FrameError(f"a heartbeat with {size} bytes")
        if frame.kind is Kind.DATA and not 0 < size <= file_size - frame.offset % file_size:
            raise FrameError(f"{size} bytes for offset {frame.offset}: not a part of one log file")

    # --- what the group decides ---

    def report(self, effect: do.Report, dispatched: int) -> bytes:
        """The end of our log, and how much of it can be read here."""
        if self._is_over or self._next is None:
            return b""
        return native_report(Report(effect.end, min(dispatched, self._next), effect.epoch))

    def state_applied(self, number: int, dispatched: int) -> bytes:
        """A change that `inbox.take` returned is applied here, as safely as the master has it."""
        if self._is_over or self._next is None:
            return b""
        report = Report(number, min(dispatched, self._next), self._connect.epoch, ReportKind.STATE)
        return native_report(report)
