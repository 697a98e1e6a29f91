"""The client's side of signatures: which form each connection needs, found out from the server's own refusals.

The server's side is signature_checks.py; what is signed, and how, wire/signature.py.

    new connection ──► requests go out unsigned, with the access key and an empty `SignatureV2`
        ├─ refused, with a challenge          version 2 from now on, and the refused request is sent again
        ├─ refused, without one               a server of Apache: its form from now on, and the request is sent again
        └─ anything else                      the server checks no signatures, so it gets none

So a server that checks version 2 never sees a signature of Apache's form, which could be recorded and replayed; nor
does a server without access control. The price is one refused request a connection.

Somebody who can change packets can also remove the challenge, and so get a signature of Apache's form. Against that
only TLS helps.
"""

from collections.abc import Callable
from weakref import WeakKeyDictionary

from ariane.settings import Secret
from ariane.wire.codes import ResponseCode
from ariane.wire.frame import Command
from ariane.wire.signature import (
    ACCESS_KEY,
    CHALLENGE,
    NONCE,
    SECURITY_TOKEN,
    SERVER_TIME,
    SIGNATURE,
    SIGNATURE_V2,
    SIGNED_AT,
    content_to_sign,
    content_v2,
    sign,
    sign_v2,
)

_REFUSALS = frozenset({int(ResponseCode.SYSTEM_ERROR), int(ResponseCode.NO_PERMISSION)})
"""4.x refuses with the first, 5.x with the second. A server that is unknown yet is also tried with a signature after
another error of the first kind: the request failed anyway."""

_EXCEPTIONS = ("AclException", "AuthenticationException", "AuthorizationException")
_SIGNING_FIELDS = frozenset({SIGNATURE, SIGNATURE_V2, NONCE, SIGNED_AT})


class _Peer:
    """What is known of the server at the other end of one connection."""

    __slots__ = ("challenge", "is_known", "number", "skew_ms", "wants_apaches")

    def __init__(self) -> None:
        self.is_known = False
        self.wants_apaches = False
        self.challenge: str | None = None
        self.number = 0
        self.skew_ms = 0


class Signer:
    """Signs requests for one account. `connection` is any object that lives as long as the connection does."""

    def __init__(
        self, access_key: str, secret_key: Secret, now_ms: Callable[[], int], security_token: Secret | None = None
    ) -> None:
        self._access_key = access_key
        self._secret_key = secret_key
        self._security_token = security_token
        self._now_ms = now_ms
        self._peers: WeakKeyDictionary[object, _Peer] = WeakKeyDictionary()

    def is_known(self, connection: object) -> bool:
        """Whether a response on this connection has shown what the server needs."""
        return self._peer(connection).is_known

    def signs(self, connection: object) -> bool:
        """Whether requests on this connection carry a signature, each its own."""
        peer = self._peer(connection)
        return not peer.is_known or peer.wants_apaches or peer.challenge is not None

    def sign(self, command: Command, connection: object) -> None:
        """Adds the access key, and the signature that the server of this connection needs."""
        peer = self._peer(connection)
        ext = {name: value for name, value in command.ext.items() if name not in _SIGNING_FIELDS}
        ext[ACCESS_KEY] = self._access_key
        if self._security_token is not None:
            ext[SECURITY_TOKEN] = self._security_token.reveal()
        if peer.challenge is not None:
            peer.number += 1
            ext[NONCE] = f"{peer.challenge}.{peer.number}"
            ext[SIGNED_AT] = str(self._now_ms() + peer.skew_ms)
            ext[SIGNATURE_V2] = sign_v2(self._secret_key.reveal(), content_v2(command.code, ext, command.body))
        elif peer.wants_apaches:
            content = content_to_sign(ext, command.body, with_unique_key_query=False)
            ext[SIGNATURE] = sign(self._secret_key.reveal(), content)
        else:
            ext[SIGNATURE_V2] = ""
        command.ext_texts = ext

    def learn(self, connection: object, request: Command, response: Command) -> bool:
        """Learns from a response; whether `request` was refused for a reason that another signature may avoid."""
        peer = self._peer(connection)
        was_known, peer.is_known = peer.is_known, True
        if response.code not in _REFUSALS:
            return False
        challenge = response.ext.get(CHALLENGE)
        if challenge:
            peer.skew_ms = _milliseconds(response.ext.get(SERVER_TIME), self._now_ms()) - self._now_ms()
            if challenge != peer.challenge:
                peer.challenge, peer.number = challenge, 0
            return True
        is_unsigned = SIGNATURE not in request.ext and not request.ext.get(SIGNATURE_V2)
        if is_unsigned and peer.challenge is None and (not was_known or _is_about_access(response)):
            peer.wants_apaches = True
            return True
        return False

    def _peer(self, connection: object) -> _Peer:
        peer = self._peers.get(connection)
        if peer is None:
            peer = self._peers[connection] = _Peer()
        return peer


def _is_about_access(response: Command) -> bool:
    return response.code == ResponseCode.NO_PERMISSION or any(name in (response.remark or "") for name in _EXCEPTIONS)


def _milliseconds(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 15 else otherwise
