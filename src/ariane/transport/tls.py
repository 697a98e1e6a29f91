"""TLS contexts for server and client, and detection of TLS on a port that serves both TLS and plain connections.

A TLS connection begins with byte 0x16. A frame below 16 MiB begins with 0x00, so one peeked byte decides.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from socket import MSG_PEEK, socket

from ariane.errors import SettingsError
from ariane.settings import Secret
from ariane.transport.settings import ClientAuthentication, TlsMode, TlsSettings

_HELLO = b"\x16"
_VERIFY = {
    ClientAuthentication.NONE: ssl.CERT_NONE,
    ClientAuthentication.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuthentication.REQUIRE: ssl.CERT_REQUIRED,
}


def server_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """None when this server does not speak TLS: switched off, or permissive without a certificate."""
    certificate, trust = settings.certificate, settings.trust
    if settings.mode is TlsMode.DISABLED or certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    password = None if settings.key_password is None else settings.key_password.reveal()
    _load(certificate, lambda: context.load_cert_chain(certificate, settings.key, password))
    if trust is not None:
        _load(trust, lambda: context.load_verify_locations(trust))
    context.verify_mode = _VERIFY[settings.client_authentication]
    return context


def client_context(
    trust: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    key_password: Secret | None = None,
) -> ssl.SSLContext:
    """Verifies the server against `trust`, or the system's certificates when None is given."""
    context = ssl.create_default_context()
    if trust is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts this file alone, not the system's too
        _load(trust, lambda: context.load_verify_locations(trust))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        password = (
            "" if key_password is None else key_password.reveal()
        )  # without one, OpenSSL would ask at the terminal
        _load(certificate, lambda: context.load_cert_chain(certificate, key, password))
    return context


def _load(path: Path, step: Callable[[], None]) -> None:
    try:
        step()
    except OSError as error:  # ssl.SSLError is one
        raise SettingsError(f"TLS file {path} cannot be used: {error}") from error


async def chosen_tls(peer: socket, context: ssl.SSLContext | None, mode: TlsMode) -> ssl.SSLContext | None:
    """The context for a new connection, by its first byte; None for a plain one. OSError when plain is not allowed."""
    if context is None:
        return None  # a TLS hello then fails as an invalid frame
    if await begins_with_tls(peer):
        return context
    if mode is TlsMode.ENFORCING:
        raise ConnectionRefusedError("plain text at a server that enforces TLS")
    return None


async def begins_with_tls(peer: socket) -> bool:
    """Peeks at the first byte of a connection, waiting for it. An end of stream counts as plain."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(peer, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(peer)
    return peer.recv(1, MSG_PEEK) == _HELLO
