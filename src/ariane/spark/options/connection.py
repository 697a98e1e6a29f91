"""Options for the connection to a cluster, shared by reads and writes. The names are those of Apache's clients."""

from dataclasses import dataclass
from pathlib import Path

from ariane.client.settings import ClientSettings, ClientTlsSettings
from ariane.settings import Secret, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    nameservers: str = setting(
        "127.0.0.1:9876",
        key=("nameServer", "namesrvAddr"),
        doc="Nameservers as HOST:PORT, several separated by semicolons.",
    )
    access_key: str | None = setting(None, key="accessKey", doc="The account that signs requests.")
    secret_key: Secret | None = setting(None, key="secretKey", doc="The key that signs requests.")
    security_token: Secret | None = setting(None, key="securityToken", doc="A temporary token, if the account has one.")
    tls_enable: bool = setting(
        False, key=("useTLS", "tls.enable"), doc="Whether all connections to nameservers and brokers use TLS."
    )
    tls_trust: Path | None = setting(
        None, key="tls.client.trustCertPath", doc="PEM file that servers are verified against, on every executor."
    )
    tls_certificate: Path | None = setting(None, key="tls.client.certPath", doc="PEM file of the client's certificate.")
    tls_key: Path | None = setting(None, key="tls.client.keyPath", doc="PEM file of its private key.")
    tls_verify: bool = setting(True, key="tls.client.authServer", doc="Whether a server must prove its name.")
    patience_s: float = setting(
        60.0,
        key="brokerWaitSeconds",
        minimum=0,
        maximum=3600,
        doc="How long a task retries when a broker does not respond, before it fails and Spark starts it again. Longer "
        "than a broker takes to restart.",
    )

    def client_settings(self) -> ClientSettings:
        return ClientSettings(
            nameservers=self.nameservers,
            access_key=self.access_key,
            secret_key=self.secret_key,
            security_token=self.security_token,
            tls=ClientTlsSettings(
                enable=self.tls_enable,
                trust=self.tls_trust,
                certificate=self.tls_certificate,
                key=self.tls_key,
                verify=self.tls_verify,
            ),
        )
