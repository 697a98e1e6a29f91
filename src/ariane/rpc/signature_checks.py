"""The server's side of signatures: verifies both forms, issues challenges, and recognises replays of version 2.

wire/signature.py computes and compares the HMAC.

A challenge belongs to one connection, and each request on it uses another number. So a recorded request is worthless
on any other connection, at any other server, and after a restart; on its own connection its number is used up. What is
kept for this is bounded by the number of connections, whatever their traffic.

The fast path verifies a frame and may then leave it to the general path, which verifies it again: `frame_left` gives
the number of that one frame back.
"""

import logging
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Final

from ariane.clock import Clock
from ariane.errors import RequestFailed, SignatureRequired
from ariane.rpc.lockout import Lockout
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.signature import NONCE, SIGNATURE, SIGNATURE_V2, SIGNED_AT, verify, verify_v2

log = logging.getLogger(__name__)

TIME_WINDOW_MS: Final = 5 * 60 * 1000
NUMBERS_AHEAD_MAX: Final = 4096
"""Requests may overtake each other by so many on one connection."""
_DIGITS_MAX = 15


class UsedNumbers:
    """The numbers that were used on one connection: all up to `floor`, and those in `ahead`."""

    __slots__ = ("ahead", "floor")

    def __init__(self) -> None:
        self.floor = 0
        self.ahead: set[int] = set()

    def use(self, number: int) -> bool:
        """False if it was used before, or is too far behind to tell."""
        if number == self.floor + 1:
            self.floor = number
        elif number <= self.floor or number in self.ahead:
            return False
        else:
            self.ahead.add(number)
            if len(self.ahead) > NUMBERS_AHEAD_MAX:  # the numbers before the smallest never came
                self.floor = min(self.ahead)
                self.ahead.discard(self.floor)
        while self.ahead and self.floor + 1 in self.ahead:
            self.floor += 1
            self.ahead.discard(self.floor)
        return True


class _Session:
    """One connection: its challenge, the numbers used, and the accounts that were proved on it."""

    __slots__ = ("challenge", "given_back", "last", "numbers", "proved")

    def __init__(self) -> None:
        self.challenge = secrets.token_urlsafe(12)
        self.numbers = UsedNumbers()
        self.proved: set[str] = set()
        self.last = 0
        self.given_back: int | None = None

    def use(self, number: int) -> bool:
        if number == self.given_back:
            self.given_back = None
            return True
        if not self.numbers.use(number):
            return False
        self.last = number
        return True


class Signatures:
    def __init__(self, clock: Clock, *, require_v2: bool = False) -> None:
        """`require_v2` refuses Apache's form."""
        self._clock = clock
        self._require_v2 = require_v2
        self._sessions: dict[Connection, _Session] = {}
        self.lockout = Lockout(clock)
        self.replays = 0
        """Requests refused because their signature had been used, or was made for another connection."""

    def verify(
        self,
        connection: Connection,
        host: str,
        key: str,
        secret: str,
        code: int,
        ext: Mapping[str, str],
        body: bytes,
        *,
        counts: bool = True,
    ) -> int | None:
        """Verifies a request's signature; returns the number to `use` if the request is admitted, None if it has none.

        RequestFailed when it is not valid. `counts` is False on the fast path: the general path asks again.
        """
        session = self._session(connection)
        if key not in session.proved and (problem := self.lockout.problem(host, key)) is not None:
            raise RequestFailed(ResponseCode.NO_PERMISSION, problem)
        claimed = ext.get(SIGNATURE_V2)
        if claimed is None:
            if self._require_v2:
                raise self._required(session, "this server requires signatures of version 2 (aclRequireV2)")
            number, is_valid = None, verify(secret, ext, body)
        elif not claimed:
            raise self._required(session, "a signature of version 2 with this challenge is required")
        else:
            number = self._number(session, ext, counts)
            is_valid = verify_v2(secret, code, ext, body)
        if not is_valid:
            if counts and (claimed or SIGNATURE in ext) and key not in session.proved:
                self.lockout.fail(host, key)
            raise RequestFailed(ResponseCode.NO_PERMISSION, f"Check signature failed for accessKey={key}")
        if number is not None:
            self._check_time(session, ext)
        if key not in session.proved:
            session.proved.add(key)
            self.lockout.prove(host, key)
        return number

    def use(self, connection: Connection, number: int | None, *, counts: bool = True) -> None:
        """Uses up the number of a request that is about to be served; RequestFailed for a replay."""
        session = self._session(connection)
        if number is not None and not session.use(number):
            self.replays += counts
            raise self._required(session, "this request was received before: its signature is used up")

    def frame_left(self, connection: Connection) -> None:
        """The frame that the fast path verified last comes again, through the general path."""
        session = self._session(connection)
        session.given_back = session.last

    def _number(self, session: _Session, ext: Mapping[str, str], counts: bool) -> int:
        challenge, _, digits = ext.get(NONCE, "").rpartition(".")
        if challenge != session.challenge:
            self.replays += counts
            raise self._required(session, "this request was signed for another connection")
        if not digits.isascii() or not digits.isdigit() or len(digits) > _DIGITS_MAX or int(digits) == 0:
            raise self._required(session, f"{NONCE} must end with a number from 1 on")
        return int(digits)

    def _check_time(self, session: _Session, ext: Mapping[str, str]) -> None:
        text = ext.get(SIGNED_AT, "")
        is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
        if not is_number or abs(int(text) - self._clock.now_ms()) > TIME_WINDOW_MS:
            raise self._required(session, f"{SIGNED_AT} is more than 5 minutes off this server's clock")

    def _required(self, session: _Session, remark: str) -> SignatureRequired:
        return SignatureRequired(ResponseCode.NO_PERMISSION, remark, session.challenge, self._clock.now_ms())

    def _session(self, connection: Connection) -> _Session:
        session = self._sessions.get(connection)
        if session is None:
            session = _Session()
            if connection.is_open:  # otherwise nothing would ever remove it
                self._sessions[connection] = session
                connection.on_close(partial(self._forget, connection))
        return session

    def _forget(self, connection: Connection) -> None:
        self._sessions.pop(connection, None)
