"""Request signatures: Apache's (ACL 1.0), and version 2, which a recorded request cannot be replayed with.

**Apache's**: Base64 of HMAC-SHA1 over the values of all extension fields but the signature, ordered by key, then the
body as it is sent. Fields that a server does not know are signed too. Neither the request code nor the names of the
fields are covered, nor a time: who recorded a request can send it again, and even as another request with the same
values.

**Version 2**: Base64 of HMAC-SHA256 over a JSON array of texts without blanks, then the body as it is sent:

    ["2 <request code>","AccessKey","...","SignatureNonce","...","SignedAt","...", all other fields by name]

    AccessKey          the account
    SignatureV2        the signature itself, which is left out of the content; empty to ask for a challenge
    SignatureNonce     <challenge>.<number>: the server's challenge for this connection, and a number used once
    SignedAt           milliseconds since 1970 by the server's clock

A server that checks version 2 sends `SignatureChallenge` and `SignatureTime` with each refusal that a signature of
version 2 would avoid. rpc/signing.py has the client's side, rpc/signature_checks.py the server's.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache

import msgspec

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  the name of a field, not a secret
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
SIGNATURE_V2 = "SignatureV2"
NONCE = "SignatureNonce"
SIGNED_AT = "SignedAt"
CHALLENGE = "SignatureChallenge"
SERVER_TIME = "SignatureTime"

# --- Apache's ---------------------------------------------------------------------------------------------------------


def access_key_of(ext: Mapping[str, str]) -> str | None:
    """The claimed access key; None for an unsigned request, which C++ clients send with an empty key."""
    return ext.get(ACCESS_KEY) or None


def content_to_sign(ext: Mapping[str, str], body: bytes | None, *, with_unique_key_query: bool) -> bytes:
    """The bytes that a signature covers.

    Clients up to 4.9.3, and Ariane's, do not sign `_UNIQUE_KEY_QUERY`, because they sign the fields of the header class
    and add this one afterwards; 4.9.4 and later sign it.
    """
    excluded = {SIGNATURE} if with_unique_key_query else {SIGNATURE, UNIQUE_KEY_QUERY}
    values = [ext[key] for key in _sorted_keys(tuple(ext)) if key not in excluded]
    return _java_bytes("".join(values)) + (body or b"")


def sign(secret: str, content: bytes) -> str:
    """The value of the `Signature` field."""
    # The protocol prescribes SHA-1; its known collisions do not weaken an HMAC.
    return b64encode(hmac.digest(_java_bytes(secret), content, "sha1")).decode("ascii")


def verify(secret: str, ext: Mapping[str, str], body: bytes | None) -> bool:
    """Whether the request's signature is valid. Tries with and without `_UNIQUE_KEY_QUERY`, whatever its version."""
    claimed = _java_bytes(ext.get(SIGNATURE, ""))
    forms = (False, True) if UNIQUE_KEY_QUERY in ext else (False,)
    contents = [content_to_sign(ext, body, with_unique_key_query=form) for form in forms]
    return any(hmac.compare_digest(sign(secret, content).encode("ascii"), claimed) for content in contents)


# --- version 2 --------------------------------------------------------------------------------------------------------

_encode_texts = msgspec.json.Encoder().encode


def content_v2(code: int, ext: Mapping[str, str], body: bytes) -> bytes:
    """The bytes that a signature of version 2 covers. UnicodeEncodeError for a text that no header can hold."""
    texts = [f"2 {code}"]
    for key in _sorted_keys(tuple(ext)):
        if key != SIGNATURE_V2:
            texts += (key, ext[key])
    return _encode_texts(texts) + body


def sign_v2(secret: str, content: bytes) -> str:
    """The value of the `SignatureV2` field."""
    return b64encode(hmac.digest(_java_bytes(secret), content, "sha256")).decode("ascii")


def verify_v2(secret: str, code: int, ext: Mapping[str, str], body: bytes) -> bool:
    """Whether the signature of version 2 is valid. Whether it is a replay, only the server's connection can tell."""
    try:
        expected = sign_v2(secret, content_v2(code, ext, body))
    except UnicodeEncodeError:
        return False
    return hmac.compare_digest(expected.encode("ascii"), _java_bytes(ext.get(SIGNATURE_V2, "")))


# --- texts ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _sorted_keys(keys: tuple[str, ...]) -> list[str]:
    """Clients send the same fields over and over: to sort them each time would take longer than the signature."""
    return sorted(keys, key=_java_order)


def _java_order(key: str) -> bytes:
    """Java sorts strings by UTF-16 unit, Python by code point; the orders differ outside the basic plane."""
    return key.encode("utf-16-be", "surrogatepass")


def _java_bytes(text: str) -> bytes:
    """UTF-8 as Java encodes it: a lone surrogate becomes a question mark, where Python would raise."""
    return text.encode("utf-8", "replace")
