"""The access signature on everything a client sends, one-way calls and heartbeats included."""

from ariane.client.settings import ClientSettings
from ariane.settings import Secret
from ariane.wire.command import Command
from ariane.wire.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, content_to_sign, sign


class Signer:
    def __init__(self, access_key: str, secret_key: Secret, security_token: Secret | None = None) -> None:
        self._access_key = access_key
        self._secret_key = secret_key
        self._security_token = security_token

    @classmethod
    def of(cls, settings: ClientSettings) -> "Signer | None":
        """None for a client without an access key."""
        if settings.access_key is None or settings.secret_key is None:
            return None
        return cls(settings.access_key, settings.secret_key, settings.security_token)

    def sign(self, command: Command) -> None:
        """Adds who we are, and the proof over all header fields and the body."""
        ext = command.ext | {ACCESS_KEY: self._access_key}
        if self._security_token is not None:
            ext[SECURITY_TOKEN] = self._security_token.reveal()
        content = content_to_sign(ext, command.body, with_unique_key_query=False)
        command.ext_texts = ext | {SIGNATURE: sign(self._secret_key.reveal(), content)}
