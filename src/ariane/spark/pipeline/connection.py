"""How the command reaches the cluster, as options of sources and sinks."""

from collections.abc import Mapping

from ariane.client.settings import ClientSettings

Connection = Mapping[str, str]
"""Options by which sources, sinks and jobs reach the cluster."""


def merged(connection: Connection, own: Mapping[str, str]) -> dict[str, str]:
    """What the file says wins, in whatever case it says it: for Spark nameserver and nameServer are one option."""
    said = {name.lower() for name in own}
    return {**{name: text for name, text in connection.items() if name.lower() not in said}, **own}


def connection_options(settings: ClientSettings) -> dict[str, str]:
    tls = settings.tls
    options: dict[str, object] = {
        "nameServer": settings.nameservers,
        "accessKey": settings.access_key,
        "secretKey": settings.secret_key,
        "securityToken": settings.security_token,
    }
    if tls.enable:
        options |= {
            "useTLS": "true",
            "tls.client.trustCertPath": tls.trust,
            "tls.client.certPath": tls.certificate,
            "tls.client.keyPath": tls.key,
            "tls.client.authServer": "true" if tls.verify else "false",
        }
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: object) -> str:
    reveal = getattr(value, "reveal", None)
    return str(reveal() if callable(reveal) else value)
