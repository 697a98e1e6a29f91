import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What a guest does with consumers. Each push consumer has an inbox, which names it and its messages. */
final class GuestConsumers {
    private static final long POLL_MS = 1_000;
    private final String nameserver;
    private final GuestProducers producers;
    private final Map<String, DefaultMQPushConsumer> running = new ConcurrentHashMap<>();

    GuestConsumers(String nameserver, GuestProducers producers) {
        this.nameserver = nameserver;
        this.producers = producers;
    }

    Line consume(Line ask) throws Exception {
        boolean traced = ask.get("trace", "false").equals("true");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                ask.get("group"), GuestAccount.hook(), new AllocateMessageQueueAveragely(), traced, null);
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(ask.get("inbox"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.setMaxReconsumeTimes(ask.number("max_reconsume", 16));
        if (ask.get("model", "CLUSTERING").equals("BROADCASTING")) {
            // The enum lives in other packages in 4.x and 5.x.
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
        }
        consumer.subscribe(ask.get("topic"), ask.has("sql")
                ? MessageSelector.bySql(ask.get("sql"))
                : MessageSelector.byTag(ask.get("expression", "*")));
        listen(consumer, ask);
        consumer.start();
        running.put(ask.get("inbox"), consumer);
        return new Line().with("client_id", consumer.buildMQClientId());
    }

    Line stop(Line ask) {
        running.remove(ask.get("inbox")).shutdown();
        return new Line();
    }

    /** All that is in the topic, by a consumer that chooses its own queues and offsets. */
    Line pull(Line ask) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(ask.get("group"), GuestAccount.hook());
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(ask.get("group"));
        consumer.start();
        try {
            return GuestProducers.bodies(pullAll(consumer, ask.get("topic")));
        } finally {
            consumer.shutdown();
        }
    }

    private static List<MessageExt> pullAll(DefaultMQPullConsumer consumer, String topic) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            PullResult result = consumer.pull(queue, "*", consumer.minOffset(queue), 32);
            while (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
                result = consumer.pull(queue, "*", result.getNextBeginOffset(), 32);
            }
        }
        return found;
    }

    /** Polls until `count` messages have come or `seconds` are over. */
    Line poll(Line ask) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(ask.get("group"), GuestAccount.hook());
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(ask.get("group"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(ask.get("topic"), "*");
        consumer.start();
        List<MessageExt> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 1_000L * ask.number("seconds", 30);
        while (found.size() < ask.number("count", 1) && System.currentTimeMillis() < deadline) {
            found.addAll(consumer.poll(POLL_MS));
        }
        consumer.commitSync();
        consumer.shutdown();
        return GuestProducers.bodies(found);
    }

    private void listen(DefaultMQPushConsumer consumer, Line ask) {
        if (ask.get("ordered", "false").equals("true")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> accept(messages, ask)
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> accept(messages, ask)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
    }

    /** Reports the messages; false while they have been tried fewer than `fail` times. */
    private boolean accept(List<MessageExt> messages, Line ask) {
        for (MessageExt message : messages) {
            new Line().with("event", "message")
                    .with("inbox", ask.get("inbox"))
                    .with("body", GuestProducers.text(message.getBody()))
                    .with("tags", message.getTags())
                    .with("keys", message.getKeys())
                    .with("message_id", message.getMsgId())
                    .with("queue_id", message.getQueueId())
                    .with("queue_offset", message.getQueueOffset())
                    .with("attempt", message.getReconsumeTimes() + 1)
                    .print();
            reply(message, ask);
        }
        return messages.get(0).getReconsumeTimes() >= ask.number("fail", 0);
    }

    private void reply(MessageExt message, Line ask) {
        if (ask.has("reply")) {
            try {
                byte[] body = (ask.get("reply") + GuestProducers.text(message.getBody())).getBytes();
                producers.producer(false).send(MessageUtil.createReplyMessage(message, body));
            } catch (Exception problem) {
                problem.printStackTrace();
            }
        }
    }
}
