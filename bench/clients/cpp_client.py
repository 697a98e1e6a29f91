"""Benchmark of Apache's C++ client for Python, the wheel `rocketmq`: the fastest other Python client."""

import threading
from collections.abc import Iterator

from rocketmq.client import Message, Producer, PushConsumer

from bench.clients.plan import ClientPlan, ClientResult, Job
from bench.clients.stopwatch import Stopwatch

IN_FLIGHT = 256
BATCH = 32


def run(plan: ClientPlan) -> ClientResult:
    return _consume(plan) if plan.job is Job.CONSUME else _send(plan)


def _send(plan: ClientPlan) -> ClientResult:
    producer = Producer("bench-cpp")
    producer.set_namesrv_addr(plan.nameserver)
    producer.start()
    try:
        producer.send_sync(_message(plan))  # finds the route and connects
        watch = Stopwatch()
        jobs = {Job.SEND_ONE_BY_ONE: _one_by_one, Job.SEND_IN_FLIGHT: _in_flight, Job.SEND_BATCHED: _batched}
        jobs[plan.job](producer, plan)
        return watch.result(plan.messages)
    finally:
        producer.shutdown()


def _one_by_one(producer: Producer, plan: ClientPlan) -> None:
    for _ in range(plan.messages):
        producer.send_sync(_message(plan))


def _in_flight(producer: Producer, plan: ClientPlan) -> None:
    """Uses its asynchronous sends: threads around send_sync would be limited by the GIL."""
    slots = threading.Semaphore(IN_FLIGHT)
    failures: list[Exception] = []

    def failed(error: Exception) -> None:
        failures.append(error)
        slots.release()

    for _ in range(plan.messages):
        slots.acquire()
        producer.send_async(_message(plan), lambda _result: slots.release(), failed)
    for _ in range(IN_FLIGHT):
        slots.acquire()
    if failures:
        raise failures[0]


def _batched(producer: Producer, plan: ClientPlan) -> None:
    for size in _sizes(plan.messages):
        producer.send_batch([_message(plan) for _ in range(size)])


def _sizes(messages: int) -> Iterator[int]:
    for begin in range(0, messages, BATCH):
        yield min(BATCH, messages - begin)


def _message(plan: ClientPlan) -> Message:
    message = Message(plan.topic)
    message.set_keys("order-1")
    message.set_tags("paid")
    message.set_body(b"x" * plan.body_bytes)
    return message


def _consume(plan: ClientPlan) -> ClientResult:
    consumer = PushConsumer("bench-cpp")
    consumer.set_namesrv_addr(plan.nameserver)
    done = threading.Event()
    watch: Stopwatch | None = None
    count = 0
    lock = threading.Lock()

    def take(message: object) -> None:
        nonlocal watch, count
        with lock:
            if watch is None:
                watch = Stopwatch()
            count += 1
            if count == plan.messages:
                done.set()

    consumer.subscribe(plan.topic, take)
    consumer.start()
    try:
        done.wait()
        assert watch is not None
        return watch.result(count)
    finally:
        consumer.shutdown()
