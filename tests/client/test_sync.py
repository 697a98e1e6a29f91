"""The synchronous API with a real broker."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from queue import Queue

import pytest

from ariane.sync import (
    COMMIT,
    UNKNOWN,
    Admin,
    ClientClosed,
    ClientError,
    Decision,
    LitePullConsumer,
    Message,
    MessageQueue,
    NoRoute,
    Producer,
    PullConsumer,
    PullContext,
    PullStatus,
    PushConsumer,
    Received,
    ScheduledPullConsumer,
    SendResult,
    SendStatus,
    TransactionProducer,
)
from tests.client.cluster_fixture import fresh
from tests.client.sync_cluster_fixture import PATIENCE_S, ariane_threads, cluster_in_a_thread


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    quick = {"transaction_timeout_s": 0.1, "transaction_check_interval_s": 0.2}
    with cluster_in_a_thread(tmp_path_factory.mktemp("sync"), **quick) as address:
        yield address


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    for thread in ariane_threads():  # a pool's thread ends a moment after its pool
        thread.join(PATIENCE_S)
    assert ariane_threads() == []


@pytest.fixture
def topic(nameserver: str) -> str:
    name = fresh("sync")
    with Admin(nameserver) as admin:
        admin.topics.create(name, queues=2)
    return name


def test_a_message_is_sent_and_found(nameserver: str, topic: str) -> None:
    with Producer(nameserver, group="g") as producer, Admin(nameserver) as admin:
        sent = producer.send(topic, b"hello", tags="t", keys=["k"])
        assert sent.status is SendStatus.SEND_OK
        assert len(producer.queues(topic)) == 2
        assert [result.status for result in producer.send_batch([Message(topic=topic, body=b"b")] * 2)] == [
            "SEND_OK"
        ] * 2
        producer.send_oneway(topic, b"gone")
        assert admin.messages.by_id(sent.offset_message_id).body == b"hello"
        assert (producer.settings.group, producer.client_id.count("@")) == ("g", 1)


def test_errors_are_those_of_the_asynchronous_api(nameserver: str) -> None:
    with Admin(nameserver) as admin, pytest.raises(NoRoute, match="create it with"):
        admin.topics.route(fresh("nowhere"))
    with pytest.raises(TypeError, match="group"):
        Producer(nameserver)  # type: ignore[call-arg]


def test_send_nowait_returns_a_future_and_calls_back_in_a_thread(nameserver: str, topic: str) -> None:
    notifications: Queue[tuple[SendResult | None, str]] = Queue()
    with Producer(nameserver, group="g") as producer:

        def callback(result: SendResult | None, error: Exception | None) -> None:
            producer.send(topic, b"a callback may block")
            notifications.put((result, threading.current_thread().name))

        future = producer.send_nowait(topic, b"later", callback=callback)
        assert isinstance(future, Future)
        result, name = notifications.get(timeout=PATIENCE_S)
        assert result == future.result(PATIENCE_S)
        assert name.startswith("ariane-callback")
        failed = producer.send_nowait(topic, b"")
        assert failed.exception(PATIENCE_S) is not None


def test_a_handler_may_block_and_use_other_clients(nameserver: str, topic: str) -> None:
    responses = fresh("answers")
    got: Queue[bytes] = Queue()
    consumer = PushConsumer(nameserver, group=fresh("group"), start="earliest")
    with Admin(nameserver) as admin, Producer(nameserver, group="g") as producer:
        admin.topics.create(responses, queues=1)

        @consumer.on(topic)
        def answer(message: Received) -> None:
            producer.send(responses, message.body.upper())
            got.put(message.body)

        producer.send(topic, b"question")
        with consumer:
            assert got.get(timeout=PATIENCE_S) == b"question"
        assert consumer.counts[topic].consumed == 1
        assert [message.body for message in admin.queues.scan(responses)] == [b"QUESTION"]


def test_on_error_runs_in_a_thread(nameserver: str, topic: str) -> None:
    seen: Queue[tuple[str, str]] = Queue()

    def refuse(message: Received) -> None:
        raise ValueError("not this one")

    with Producer(nameserver, group="g") as producer:

        def on_error(message: Received, error: BaseException) -> None:
            producer.send(topic, b"reported", tags="report")
            seen.put((str(error), threading.current_thread().name))

        consumer = PushConsumer(nameserver, group=fresh("group"), start="earliest", handler=refuse, on_error=on_error)
        consumer.subscribe(topic, "order")
        producer.send(topic, b"bad", tags="order")
        with consumer:
            text, thread = seen.get(timeout=PATIENCE_S)
    assert text == "not this one"
    assert thread.startswith("ariane-consume")


def test_messages_are_iterated_over(nameserver: str, topic: str) -> None:
    with Producer(nameserver, group="g") as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    bodies = []
    with LitePullConsumer(nameserver, group=fresh("group"), start="earliest") as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 10:
                break
        consumer.commit()
        assert sum(consumer.committed(queue) or 0 for queue in consumer.assignment) == 10
        assert consumer.poll(timeout_s=0) == []
    assert sorted(bodies) == [b"%d" % number for number in range(10)]


def test_manual_pulls(nameserver: str, topic: str) -> None:
    with Producer(nameserver, group="g") as producer, PullConsumer(nameserver, group=fresh("group")) as consumer:
        sent = producer.send(topic, b"one")
        result = consumer.pull(sent.queue, 0)
        assert (result.status, [message.body for message in result.messages]) == (PullStatus.FOUND, [b"one"])
        consumer.update_offset(sent.queue, result.next_offset)
        consumer.commit()
        assert consumer.fetch_offset(sent.queue, from_broker=True) == 1


def test_a_scheduled_callback_gets_the_synchronous_consumer(nameserver: str, topic: str) -> None:
    got: Queue[bytes] = Queue()
    consumer = ScheduledPullConsumer(nameserver, group=fresh("group"))

    @consumer.register(topic)
    def pull(queue: MessageQueue, context: PullContext) -> None:
        assert context.consumer is consumer
        result = context.consumer.pull(queue, context.consumer.fetch_offset(queue) or 0)
        context.consumer.update_offset(queue, result.next_offset)
        context.next_delay_s = 0.01
        for message in result.messages:
            got.put(message.body)

    with Producer(nameserver, group="g") as producer, consumer:
        producer.send(topic, b"scheduled")
        assert got.get(timeout=PATIENCE_S) == b"scheduled"


def test_a_listener_is_called_in_a_thread(nameserver: str, topic: str) -> None:
    notifications: Queue[int] = Queue()
    consumer = PullConsumer(nameserver, group=fresh("group"))
    consumer.on_queues_changed(topic, lambda _topic, _everything, mine: notifications.put(len(mine)))
    with consumer:
        assert notifications.get(timeout=PATIENCE_S) == 2


def test_a_local_transaction_runs_in_the_thread_that_sends(nameserver: str, topic: str) -> None:
    database = sqlite3.connect(":memory:")  # which refuses every thread but the one that made it
    database.execute("create table orders (id text)")

    def execute(message: Message, order: str) -> Decision:
        database.execute("insert into orders values (?)", [order])
        return COMMIT

    with TransactionProducer(nameserver, group=fresh("g"), check=lambda _: UNKNOWN) as producer:
        result = producer.send_in_transaction(topic, b"paid", arg="order-17", execute=execute)
    assert (result.decision, result.error) == (COMMIT, None)
    assert database.execute("select id from orders").fetchall() == [("order-17",)]
    database.close()


def test_a_check_runs_in_a_thread(nameserver: str, topic: str) -> None:
    checked: Queue[str] = Queue()

    def check(message: object) -> Decision:
        checked.put(threading.current_thread().name)
        return COMMIT

    with TransactionProducer(
        nameserver,
        group=fresh("g"),
        check=check,
        execute=lambda _message, _arg: UNKNOWN,
    ) as producer:
        producer.send_in_transaction(topic, b"perhaps")
        assert checked.get(timeout=PATIENCE_S).startswith("ariane-consume")


def test_request_and_reply(nameserver: str, topic: str) -> None:
    with Producer(nameserver, group="requesters") as requester, Producer(nameserver, group="repliers") as replier:
        consumer = PushConsumer(nameserver, group=fresh("group"), start="earliest")
        consumer.subscribe(topic, handler=lambda message: replier.reply(message, message.body.upper()))
        with consumer:
            assert requester.request(topic, b"ping", timeout_s=PATIENCE_S).body == b"PING"


def test_many_threads_share_one_producer(nameserver: str, topic: str) -> None:
    with Producer(nameserver, group="g") as producer, Admin(nameserver) as admin:
        threads = [threading.Thread(target=producer.send, args=(topic, b"%d" % number)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert admin.topics.stats(topic).count == 20


def test_a_scan_may_be_stopped_half_way(nameserver: str, topic: str) -> None:
    with Producer(nameserver, group="g") as producer, Admin(nameserver) as admin:
        for _ in range(3):
            producer.send(topic, b"x")
        scan = admin.queues.scan(topic)
        assert next(scan).body == b"x"
        scan.close()  # type: ignore[attr-defined]
        assert len(list(admin.queues.scan(topic))) == 3


def test_a_client_that_is_not_open_raises_client_closed(nameserver: str) -> None:
    producer = Producer(nameserver, group="g")
    with pytest.raises(ClientClosed, match="not open"):
        producer.send("T", b"x")
    producer.close()
    with producer, pytest.raises(ClientClosed, match="started before"):
        producer.start()
    with pytest.raises(ClientClosed, match="not open"):
        producer.send("T", b"x")
    with pytest.raises(ClientClosed):
        producer.start()
    with pytest.raises(AttributeError):
        _ = producer.sent  # type: ignore[attr-defined]


def test_a_failed_start_leaves_no_thread(nameserver: str) -> None:
    with pytest.raises(ClientError, match="no subscription"):
        PushConsumer(nameserver, group="g", handler=print).start()
    assert ariane_threads() == []


def test_a_blocking_call_on_the_loop_is_refused_instead_of_deadlocking(nameserver: str, topic: str) -> None:
    with Producer(nameserver, group="g") as producer:
        with pytest.raises(ClientError, match="would wait for itself"):
            producer.send(topic, b"x", queue=lambda _queues, _message: producer.queues(topic)[0])


def test_wrapper_classes_keep_inheritance_names_and_documentation() -> None:
    assert issubclass(TransactionProducer, Producer)
    assert issubclass(ScheduledPullConsumer, PullConsumer)
    assert (Producer.__module__, Producer.__name__) == ("ariane.sync", "Producer")
    assert "waits for the broker" in (Producer.send.__doc__ or "")
    assert repr(Producer("127.0.0.1:1", group="g")).startswith("<ariane.sync wrapper of ")
