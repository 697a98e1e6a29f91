"""One remoting command: a request or a response, whatever its header was written in.

A `Command` is what msgspec decodes the JSON header into, so a header costs one object. Its `extFields` stay raw bytes
until somebody knows their type: `command.fields(SendMessageV2)` then reads them straight into the struct.
"""

from typing import TypeVar

import msgspec

from ariane.errors import HeaderError
from ariane.wire.codes import HeaderFlag, Language, Serialization, Version
from ariane.wire.fields import Int32, ext_from_json, from_ext, from_json

S = TypeVar("S", bound=msgspec.Struct)

EXT_FIELDS_MAX = 256
EXT_VALUE_MAX = 32 * 1024
# The property text of a send may pass EXT_VALUE_MAX: a broker refuses it with MESSAGE_ILLEGAL, which tells the producer
# more than a closed connection. The header's own limit still bounds it.
_PROPERTY_TEXTS = frozenset({"properties", "i"})

PYTHON = Language.PYTHON.name
_OUR_VERSION = int(Version.V4_7_1)
_LANGUAGES = dict(Language.__members__)
_LANGUAGE_NUMBERS: dict[int | None, Language] = {language.value: language for language in Language}
_NO_EXT = msgspec.Raw(b"")


class Command(msgspec.Struct, kw_only=True):
    """A decoded header with its body. `flag` tells requests, responses and one-way requests apart."""

    code: Int32
    opaque: Int32 = 0
    flag: Int32 = 0
    version: Int32 = _OUR_VERSION
    language: str | int | None = PYTHON
    remark: str | None = None
    raw_ext: msgspec.Raw = msgspec.field(name="extFields", default=_NO_EXT)
    # Not part of the JSON header: set after decoding, whatever a peer sends under these names.
    ext_texts: dict[str, str] | None = msgspec.field(name="\x7fext", default=None)
    body: bytes = msgspec.field(name="\x7fbody", default=b"")
    serialization: Serialization = msgspec.field(name="\x7fserialization", default=Serialization.JSON)

    @property
    def is_response(self) -> bool:
        return bool(self.flag & HeaderFlag.RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & HeaderFlag.ONEWAY)

    @property
    def ext(self) -> dict[str, str]:
        """The header fields as text."""
        if self.ext_texts is None:
            self.ext_texts = ext_from_json(self.raw_ext) if bytes(self.raw_ext) else {}
        return self.ext_texts

    def fields(self, kind: type[S]) -> S:
        """The header fields as `kind`."""
        if self.ext_texts is None and bytes(self.raw_ext):
            return from_json(kind, self.raw_ext)
        return from_ext(kind, self.ext)

    @property
    def language_code(self) -> Language:
        """Clients send a name in any case (`JAVA`, `other`), a number, or nothing."""
        if isinstance(self.language, str):
            return _LANGUAGES.get(self.language.upper(), Language.OTHER)
        return _LANGUAGE_NUMBERS.get(self.language, Language.OTHER)


def check_ext(ext: dict[str, str]) -> None:
    """The limits on header fields, for headers long enough to break one."""
    if len(ext) > EXT_FIELDS_MAX:
        raise HeaderError(f"the header has {len(ext)} fields or more, at most {EXT_FIELDS_MAX} are allowed")
    for name, value in ext.items():
        if len(value) > EXT_VALUE_MAX and name not in _PROPERTY_TEXTS:
            raise HeaderError(f"header field {name[:80]!r} has {len(value)} characters, more than {EXT_VALUE_MAX}")
