"""Bodies as files: the queries of mqadmin put each body where Apache's tool does, and scripts read it there."""

import os
import re
import tempfile
from pathlib import Path

from ariane.client.received import Received
from ariane.errors import ClientError

_PLAIN_NAME = re.compile(r"[0-9A-Za-z_-]{1,128}")


def write_body(message: Received) -> Path:
    """`rocketmq/msgbodys/ID` in the directory for temporary files.

    The id is the producer's own word and must not lead out of there; nor may a link that somebody else has put into
    a directory that everybody may write to.
    """
    is_plain = _PLAIN_NAME.fullmatch(message.message_id)
    name = message.message_id if is_plain else message.offset_message_id
    path = Path(tempfile.gettempdir()) / "rocketmq" / "msgbodys" / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(message.body)
    except OSError as error:
        cure = "set TMPDIR to a directory of your own"
        raise ClientError(f"the body cannot be written to {path}: {error.strerror}; {cure}") from error
    return path
