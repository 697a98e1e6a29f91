"""Accounts and certificates of one run, as configuration of the servers and clients of each vendor."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from ariane.client.settings import ClientSettings, ClientTlsSettings
from ariane.settings.values import Secret
from interop.processes import LOOPBACK

ACCESS_KEY, SECRET_KEY = "interop-admin", "interop-secret-1"


@dataclass(frozen=True, slots=True)
class Security:
    """Every request is signed, every client connection is encrypted, and the server's certificate is verified."""

    home: Path

    @classmethod
    def made(cls, home: Path) -> "Security":
        home.mkdir(parents=True)
        authority = trustme.CA()
        server = authority.issue_cert(LOOPBACK, "localhost")
        made = cls(home)
        authority.cert_pem.write_to_path(str(made.trust))
        made.key.write_bytes(_as_pkcs8(server.private_key_pem.bytes()))
        for part in server.cert_chain_pems:
            part.write_to_path(str(made.certificate), append=True)
        made.accounts.write_text(f"accounts:\n- accessKey: {ACCESS_KEY}\n  secretKey: {SECRET_KEY}\n  admin: true\n")
        return made

    @property
    def trust(self) -> Path:
        return self.home / "authority.pem"

    @property
    def certificate(self) -> Path:
        return self.home / "server.pem"

    @property
    def key(self) -> Path:
        return self.home / "server.key"

    @property
    def accounts(self) -> Path:
        return self.home / "plain_acl.yml"

    def server_lines(self, mode: str) -> dict[str, str]:
        """For Ariane's configuration file; Apache's servers read the same keys as JVM system properties."""
        return {
            "tls.server.mode": mode,
            "tls.server.certPath": str(self.certificate),
            "tls.server.keyPath": str(self.key),
        }

    def apache_server(self, mode: str) -> dict[str, str]:
        """JVM system properties of a server."""
        return {**self.server_lines(mode), "tls.test.mode.enable": "false"}

    def broker_lines(self) -> dict[str, str]:
        return {"aclEnable": "true", "rocketmq.acl.plain.file": str(self.accounts)}

    def java_client(self) -> Mapping[str, str]:
        """JVM system properties of a client; the last two are read by interop/java/Credentials.java, not by Apache."""
        return {
            "tls.enable": "true",
            "tls.test.mode.enable": "false",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(self.trust),
            "interop.accessKey": ACCESS_KEY,
            "interop.secretKey": SECRET_KEY,
        }

    def write_accounts(self, java_home: Path) -> None:
        """Where Apache's broker looks for the accounts it knows, and mqadmin for the one it signs with."""
        conf = java_home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.accounts, conf)
        (conf / "tools.yml").write_text(f"accessKey: {ACCESS_KEY}\nsecretKey: {SECRET_KEY}\n")


def _as_pkcs8(pem: bytes) -> bytes:
    """The only private key format that Apache's servers read."""
    return load_pem_private_key(pem, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def client_settings(nameserver: str, security: Security | None) -> ClientSettings:
    """For Ariane's client."""
    if security is None:
        return ClientSettings(nameservers=nameserver)
    return ClientSettings(
        nameservers=nameserver,
        access_key=ACCESS_KEY,
        secret_key=Secret(SECRET_KEY),
        tls=ClientTlsSettings(enable=True, trust=security.trust),
    )
