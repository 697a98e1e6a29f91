"""The master's end of a connection of its group: bytes of a slave to events, effects to bytes. No I/O.

    hello, proof ──► HelloArrived ──► welcome() ──► data(), heartbeat(), state() ──► Acked ... LinkClosed
                          └─────────► refuse()

After `Received.closed` nothing more is taken: send what is left, and close the connection. A report is taken only of
the epoch of the welcome, up to what was sent on this connection, and not below an earlier one.
"""

from collections.abc import Callable
from typing import NamedTuple

from ariane.errors import FrameError
from ariane.replication.frames import (
    MAGIC,
    NATIVE_BODY_BYTES_MAX,
    HelloDecoder,
    Kind,
    Report,
    ReportDecoder,
    ReportKind,
    hello_bytes,
    native_frame_head,
)
from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.link.introduction import (
    GroupHello,
    GroupMember,
    GroupWelcome,
    check_version,
    hello_refusal,
    log_of,
    new_group_challenge,
)
from ariane.replication.group.link.outbox import StateBatch
from ariane.replication.hello import decoded, is_proof, master_proof, slave_proof

_TEXT_MAX = 1_000


class Received(NamedTuple):
    events: list[on.Event]
    send: bytes
    closed: str | None
    """Why the connection has to be closed; its LinkClosed is the last event."""


def log_frames(offset: int, body: bytes | memoryview, file_size: int, epoch: int, confirmed: int) -> bytes:
    """Data frames of a part of the log; none crosses the end of a log file. The same for all slaves at one place."""
    body, pieces = memoryview(body), list[bytes | memoryview]()
    at = 0
    while at < len(body):
        size = min(len(body) - at, NATIVE_BODY_BYTES_MAX, file_size - (offset + at) % file_size)
        piece = body[at : at + size]
        pieces += (native_frame_head(Kind.DATA, offset + at, piece, confirmed, epoch), piece)
        at += size
    return b"".join(pieces)


class LeaderEnd:
    def __init__(self, link: int, me: GroupMember, secret: bytes | None) -> None:
        self.link = link
        self._me = me
        self._secret = secret
        self._receive: Callable[[bytes], None] = self._receive_magic
        self._first = b""
        self._message = HelloDecoder()
        self._hello, self._challenge = b"", b""
        self._reports = ReportDecoder(native=True, kinds=frozenset(ReportKind))
        self._events: list[on.Event] = []
        self._send = bytearray()
        self._is_over = False
        self._reported = 0
        self.hello: GroupHello | None = None
        """What the slave said of itself, once it has proved that it knows the secret."""
        self.is_streaming = False
        self.epoch = 0
        self.sent_to = 0
        """The next byte of the log to send."""
        self.dispatched = 0
        """How much of its log can be read at the slave."""
        self.states_sent = self.states_applied = 0
        """Numbers of the last changes of what is not in the log (outbox.py)."""

    # --- what the slave says ---

    def feed(self, data: bytes) -> Received:
        closed = None
        if not self._is_over:
            try:
                self._receive(data)
            except FrameError as error:
                closed = str(error)
                self._end()
        events, self._events = self._events, []
        send, self._send = bytes(self._send), bytearray()
        return Received(events, send, closed)

    def lost(self) -> list[on.Event]:
        """The connection is closed: events to handle, none if they were returned before."""
        self._end()
        events, self._events = self._events, []
        return events

    def _end(self) -> None:
        if not self._is_over:
            self._is_over, self.is_streaming = True, False
            self._events.append(on.LinkClosed(self.link))

    def _receive_magic(self, data: bytes) -> None:
        missing = len(MAGIC) - len(self._first)
        self._first, rest = self._first + data[:missing], data[missing:]
        if not MAGIC.startswith(self._first):
            raise FrameError("the protocol of RocketMQ 4.x, or of a stranger: a group serves its own members only")
        if len(self._first) == len(MAGIC):
            self._receive = self._receive_hello
            self._receive(rest)

    def _receive_hello(self, data: bytes) -> None:
        message = self._message.feed(data)
        if message is None:
            return
        rest, self._message = self._message.rest, HelloDecoder()
        check_version(message)
        log_of(decoded(GroupHello, message))
        self._hello, self._challenge = message, new_group_challenge().to_bytes()
        proof = master_proof(self._secret, self._hello, self._challenge)
        self._send += hello_bytes(self._challenge) + hello_bytes(proof)
        self._receive = self._receive_proof
        self._receive(rest)

    def _receive_proof(self, data: bytes) -> None:
        proof = self._message.feed(data)
        if proof is None:
            return
        if self._message.rest:
            self._receive_too_early(self._message.rest)
        self._receive = self._receive_too_early
        if not is_proof(proof, slave_proof(self._secret, self._hello, self._challenge)):
            self._refuse("the slave and the master have different secrets: set replication.secret_file alike")
        hello = decoded(GroupHello, self._hello)
        reason = hello_refusal(hello, self._me)
        if reason is not None:
            self._refuse(reason)
        self.hello = hello
        self._events.append(
            on.HelloArrived(
                self.link, hello.member, hello.incarnation, hello.epoch, hello.min, hello.end, log_of(hello)
            )
        )

    def _refuse(self, reason: str, epoch: int = 0) -> None:
        """The slave gets the reason, too."""
        self._send += hello_bytes(GroupWelcome(refused=reason[:_TEXT_MAX], epoch=epoch).to_bytes())
        raise FrameError(f"slave refused: {reason}")

    def _receive_too_early(self, data: bytes) -> None:
        if data:
            raise FrameError("a report before the stream")

    def _receive_reports(self, data: bytes) -> None:
        for report in self._reports.feed(data):
            if report.epoch != self.epoch:
                raise FrameError(f"a report of epoch {report.epoch} in epoch {self.epoch}")
            if report.kind is ReportKind.STATE:
                self._state_applied(report)
            else:
                self._log_reported(report)

    def _log_reported(self, report: Report) -> None:
        if report.end > self.sent_to:
            raise FrameError(f"it reported {report.end}, but only {self.sent_to} was sent: it is not a slave")
        if report.end < self._reported:
            raise FrameError(f"it reported {report.end} after {self._reported}: a log that is cut begins a connection")
        self._dispatched_to(report)
        self._reported = report.end
        self._events.append(on.Acked(self.link, report.epoch, report.end))

    def _state_applied(self, report: Report) -> None:
        if not self.states_applied <= report.end <= self.states_sent:
            raise FrameError(f"it applied change {report.end}, but {self.states_sent} was the last that was sent")
        self._dispatched_to(report)
        self.states_applied = report.end

    def _dispatched_to(self, report: Report) -> None:
        if not 0 <= report.dispatched <= self.sent_to:
            raise FrameError(f"it dispatched up to {report.dispatched}, but only {self.sent_to} was sent")
        self.dispatched = report.dispatched

    # --- what the group decides ---

    def welcome(self, effect: do.Welcome) -> bytes:
        """Without `stream_from` the slave cuts its log, and introduces itself again."""
        hello = self.hello
        if self._is_over or hello is None or self.is_streaming:
            return b""
        welcome = GroupWelcome(
            epoch=effect.epoch,
            incarnation=self._me.incarnation,
            min=effect.begin,
            end=effect.end,
            epochs=effect.epochs.pairs(),
            begin=effect.stream_from,
        )
        if effect.stream_from is not None:
            self.epoch, self.sent_to, self.is_streaming = effect.epoch, effect.stream_from, True
            self._receive = self._receive_reports
        return hello_bytes(welcome.to_bytes())

    def refuse(self, effect: do.Refuse, epoch: int) -> bytes:
        """With the group's epoch, if it is known. Then close the connection, once this is sent."""
        if self._is_over:
            return b""
        self._is_over = True
        return hello_bytes(GroupWelcome(refused=effect.why[:_TEXT_MAX], epoch=epoch).to_bytes())

    # --- the stream ---

    def data(self, body: bytes | memoryview, confirmed: int) -> bytes:
        """The log from `sent_to` on."""
        if not self.is_streaming:
            return b""
        frames = log_frames(self.sent_to, body, self._me.file_size, self.epoch, confirmed)
        self.sent_to += len(body)
        return frames

    def sent(self, to: int) -> None:
        """Frames up to there were sent, which `log_frames` made for several slaves at once."""
        self.sent_to = to

    def heartbeat(self, confirmed: int) -> bytes:
        """At least every half second, also when something new is confirmed and there is nothing to send."""
        return self._frame(Kind.HEARTBEAT, b"", confirmed)

    def state(self, batch: StateBatch, confirmed: int) -> bytes:
        """What is not in the log; the first batch has everything. It may rest on what is not sent yet."""
        if not self.is_streaming or batch.number <= self.states_sent:
            return b""
        self.states_sent = batch.number
        return b"".join(self._frame(Kind.STATE, body, confirmed) for body in batch.bodies)

    def goodbye(self, why: str, confirmed: int) -> bytes:
        """Then close the connection, once this is sent."""
        return self._frame(Kind.GOODBYE, why.encode()[:_TEXT_MAX], confirmed)

    def _frame(self, kind: Kind, body: bytes, confirmed: int) -> bytes:
        if not self.is_streaming:
            return b""
        return native_frame_head(kind, self.sent_to, body, confirmed, self.epoch) + body
