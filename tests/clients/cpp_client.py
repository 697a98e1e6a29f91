"""Drives Apache's C++ client (the `rocketmq` wheel): each line of standard input is a command, each line of standard
output a response or a message that arrived. The commands are those of interop/broker/client.py.

A separate process, because the library starts threads and writes logs and offsets under HOME. Run as: cpp_client.py
nameserver
"""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, urlencode

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage, SendResult
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import MessageModel, _CConsumeStatus, dll

STATUSES = ["SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"]
WAIT_S = 30.0
OUTPUT = threading.Lock()
Fields = Mapping[str, str]

name_server = sys.argv[1]
# Callbacks print too, and the library itself prints: only lines may get to the real output.
lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
consumers: dict[str, PushConsumer] = {}
attempts: dict[str, int] = {}


def print_line(**fields: object) -> None:
    with OUTPUT:
        print(urlencode(fields), file=lines, flush=True)


def send(request: Fields) -> dict[str, str]:
    """Once more when there was no route: this client waits 3 s for one, which a busy machine may take, and then gives
    up before anything is sent."""
    give_up = time.monotonic() + WAIT_S
    while True:
        try:
            return send_once(request)
        except Exception as problem:
            if "No route info" not in str(problem) or time.monotonic() > give_up:
                raise
            time.sleep(0.2)


def send_once(request: Fields) -> dict[str, str]:
    message = message_of(request, "body")
    if request.get("mode") == "oneway":
        producer.send_oneway(message)
        return {}
    if request.get("mode") == "async":
        return send_async(message)
    if "queue" in request:
        return send_result_fields(producer.send_orderly(message, int(request["queue"])))
    return send_result_fields(producer.send_sync(message))


def send_async(message: Message) -> dict[str, str]:
    outcome: list[SendResult | Exception] = []
    done = threading.Event()

    def finish(result: SendResult | Exception) -> None:
        outcome.append(result)
        done.set()

    producer.send_async(message, finish, finish)
    if not done.wait(WAIT_S):
        raise TimeoutError("no callback")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return send_result_fields(outcome[0])


def batch(request: Fields) -> dict[str, str]:
    names = [name for name in request if name.startswith("body")]
    return send_result_fields(producer.send_batch([message_of(request, name) for name in names]))


def consume(request: Fields) -> dict[str, str]:
    model = MessageModel.BROADCASTING if request.get("model") == "BROADCASTING" else MessageModel.CLUSTERING
    consumer = PushConsumer(request["group"], orderly=request.get("ordered") == "true", message_model=model)
    consumer.set_namesrv_addr(name_server)
    consumer.set_instance_name(request["inbox"])
    consumer.set_thread_count(4)
    ffi_check(dll.Subscribe(consumer._handle, request["topic"].encode(), request.get("expression", "*").encode()))
    # The wheel's own subscribe() raises in the callback of a handler that failed, which C takes for success.
    consumer._register_callback(lambda _consumer, handle: accept(request, RecvMessage(handle)))
    consumer.start()
    consumers[request["inbox"]] = consumer
    return {}


def accept(request: Fields, message: RecvMessage) -> int:
    attempt = attempt_of(request, message)
    print_line(
        event="message",
        inbox=request["inbox"],
        body=message.body.decode(),
        tags=(message.tags or b"").decode(),
        keys=(message.keys or b"").decode(),
        message_id=message.id,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        attempt=attempt,
    )
    failed = attempt <= int(request.get("fail", 0))
    return int(_CConsumeStatus.RECONSUME_LATER if failed else _CConsumeStatus.CONSUME_SUCCESS)


def attempt_of(request: Fields, message: RecvMessage) -> int:
    """In ordered mode this client does not count them."""
    if request.get("ordered") != "true":
        return int(message.reconsume_times) + 1
    attempts[message.id] = attempts.get(message.id, 0) + 1
    return attempts[message.id]


def stop(request: Fields) -> dict[str, str]:
    consumers.pop(request["inbox"]).shutdown()
    return {}


def pull(request: Fields) -> dict[str, str]:
    consumer = PullConsumer(request["group"])
    consumer.set_namesrv_addr(name_server)
    consumer.start()
    try:
        bodies = [message.body.decode() for message in consumer.pull(request["topic"])]
    finally:
        consumer.shutdown()
    return {f"body{number}": body for number, body in enumerate(bodies)}


def message_of(request: Fields, body: str) -> Message:
    message = Message(request["topic"])
    message.set_body(request[body])
    if "tags" in request:
        message.set_tags(request["tags"])
    if "keys" in request:
        message.set_keys(request["keys"])
    if "delay_level" in request:
        message.set_delay_time_level(int(request["delay_level"]))
    for name, value in request.items():
        if name.startswith("p."):
            message.set_property(name[2:], value)
    return message


def send_result_fields(result: SendResult) -> dict[str, str]:
    return {"status": STATUSES[result.status], "message_id": result.msg_id, "queue_offset": str(result.offset)}


def response(request: Fields) -> None:
    try:
        print_line(**VERBS[request["do"]](request), id=request["id"])
    except Exception as problem:
        traceback.print_exc()
        print_line(error=repr(problem), id=request["id"])


VERBS: dict[str, Callable[[Fields], dict[str, str]]] = {
    "send": send,
    "batch": batch,
    "consume": consume,
    "stop": stop,
    "pull": pull,
}

producer = Producer("cpp_producer_group")
producer.set_namesrv_addr(name_server)
producer.set_timeout(10_000)
producer.start()
print_line(event="ready")
for line in sys.stdin:
    threading.Thread(target=response, args=[dict(parse_qsl(line.strip(), keep_blank_values=True))], daemon=True).start()
# The library's threads may hang in its own destructors.
os._exit(0)
