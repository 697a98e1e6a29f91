"""What a broker's answer to a send means: stored, to be sent again, or hopeless."""

from ariane.errors import MessageRejected, RequestFailed
from ariane.wire.codes import ResponseCode
from ariane.wire.command import Command
from ariane.wire.exchange import read_answer
from ariane.wire.requests.send import Send, SendAnswer

# Another broker, or the same one later, may well say yes; anything else is for a person to look at.
RETRY_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)


def accepted(request: Send, command: Command) -> SendAnswer | str:
    """The answer of a broker that has the message, or why it must be sent again. Raises what no attempt can mend."""
    try:
        answer = read_answer(request, command)
    except RequestFailed as error:
        if error.code == ResponseCode.MESSAGE_ILLEGAL:
            raise MessageRejected(f"the broker refuses a message for topic {request.topic}: {error.remark}") from error
        if error.code not in RETRY_CODES and not error.retriable:
            raise
        return str(error)
    # Stored, though not as safely as the broker was set up to: not an acknowledgement.
    return answer if answer.code == ResponseCode.SUCCESS else f"{ResponseCode(answer.code).name}: {answer.remark}"
