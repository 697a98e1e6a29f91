"""Routes: order of queues, and the two names of one flag."""

from ariane.model.route import MessageQueue, QueueData


def queue_data(**flags: int) -> QueueData:
    return QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=6, **flags)


def test_queues_are_ordered_by_topic_broker_and_id() -> None:
    queues = [
        MessageQueue(topic="b", broker_name="broker-a", queue_id=0),
        MessageQueue(topic="a", broker_name="broker-b", queue_id=0),
        MessageQueue(topic="a", broker_name="broker-a", queue_id=10),
        MessageQueue(topic="a", broker_name="broker-a", queue_id=9),
    ]
    assert sorted(queues) == queues[::-1]


def test_a_queue_can_be_a_key() -> None:
    first, second = (MessageQueue(topic="a", broker_name="broker-a", queue_id=0) for _ in range(2))
    assert {first: 1} == {second: 1}


def test_the_old_name_of_the_flag_is_merged_into_the_new_one() -> None:
    data = queue_data(topic_syn_flag=2)
    assert (data.topic_sys_flag, data.topic_syn_flag) == (2, None)
    assert data == queue_data(topic_sys_flag=2)


def test_the_new_name_of_the_flag_wins_if_both_are_sent() -> None:
    assert queue_data(topic_sys_flag=1, topic_syn_flag=2).topic_sys_flag == 1
    assert queue_data(topic_sys_flag=0, topic_syn_flag=2).topic_sys_flag == 2
