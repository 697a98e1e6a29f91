"""Request signatures (ACL 1.0): Base64 of HMAC-SHA1 over the header fields and the body.

The signed content is the values of all extension fields but the signature, ordered by key, then the body as it is sent.
Fields that a server does not know are signed too.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  the name of a field, not a secret
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


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
