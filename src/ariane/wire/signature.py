"""The access signature of a request (ACL 1.0): Base64 of HMAC-SHA1 over the header fields and the body.

What is signed is the values of all extension fields but the signature, in the order of their keys, then the body as it
is sent. Keys that a server does not know count too: a client may sign more than we understand.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  the name of a field, not a secret
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


def access_key_of(ext: Mapping[str, str]) -> str | None:
    """Who claims to have signed; None for an unsigned request, which C++ clients send with an empty key."""
    return ext.get(ACCESS_KEY) or None


def content_to_sign(ext: Mapping[str, str], body: bytes | None, *, with_unique_key_query: bool) -> bytes:
    """The bytes that a signature covers.

    Clients up to 4.9.3 and ours leave `_UNIQUE_KEY_QUERY` out, because they sign the fields of the header's class and
    add this one afterwards; 4.9.4 and later sign it.
    """
    left_out = {SIGNATURE} if with_unique_key_query else {SIGNATURE, UNIQUE_KEY_QUERY}
    values = [ext[key] for key in sorted(ext, key=_java_order) if key not in left_out]
    return _java_bytes("".join(values)) + (body or b"")


def sign(secret: str, content: bytes) -> str:
    """The signature as the `Signature` field holds it."""
    # SHA-1 is the protocol's choice; in an HMAC its known collisions do not help a forger.
    return b64encode(hmac.digest(_java_bytes(secret), content, "sha1")).decode("ascii")


def verify(secret: str, ext: Mapping[str, str], body: bytes | None) -> bool:
    """Whether the request's own signature is right, with or without `_UNIQUE_KEY_QUERY`: its version does not tell."""
    claimed = _java_bytes(ext.get(SIGNATURE, ""))
    forms = (False, True) if UNIQUE_KEY_QUERY in ext else (False,)
    contents = [content_to_sign(ext, body, with_unique_key_query=form) for form in forms]
    return any(hmac.compare_digest(sign(secret, content).encode("ascii"), claimed) for content in contents)


def _java_order(key: str) -> bytes:
    """Java sorts strings by UTF-16 unit, Python by code point; they differ beyond the basic plane."""
    return key.encode("utf-16-be", "surrogatepass")


def _java_bytes(text: str) -> bytes:
    """UTF-8 as Java makes it: half a surrogate pair becomes a question mark, where Python would refuse."""
    return text.encode("utf-8", "replace")
