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

/** The commands for consumers. Each push consumer has an inbox name, which its messages are reported with. */
final class ConsumerCommands {
    private static final long POLL_MS = 1_000;
    private final String nameserver;
    private final ProducerCommands producers;
    private final Map<String, DefaultMQPushConsumer> running = new ConcurrentHashMap<>();

    ConsumerCommands(String nameserver, ProducerCommands producers) {
        this.nameserver = nameserver;
        this.producers = producers;
    }

    Line consume(Line request) throws Exception {
        boolean traced = request.get("trace", "false").equals("true");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                request.get("group"), Credentials.hook(), new AllocateMessageQueueAveragely(), traced, null);
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(request.get("inbox"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.setMaxReconsumeTimes(request.number("max_reconsume", 16));
        if (request.get("model", "CLUSTERING").equals("BROADCASTING")) {
            // The enum is in different packages in 4.x and 5.x.
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
        }
        consumer.subscribe(request.get("topic"), request.has("sql")
                ? MessageSelector.bySql(request.get("sql"))
                : MessageSelector.byTag(request.get("expression", "*")));
        listen(consumer, request);
        consumer.start();
        running.put(request.get("inbox"), consumer);
        return new Line().with("client_id", consumer.buildMQClientId());
    }

    Line stop(Line request) {
        running.remove(request.get("inbox")).shutdown();
        return new Line();
    }

    /** Reads the whole topic with a pull consumer, which chooses queues and offsets itself. */
    Line pull(Line request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(request.get("group"), Credentials.hook());
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(request.get("group"));
        consumer.start();
        try {
            return ProducerCommands.bodies(pullAll(consumer, request.get("topic")));
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

    /** Polls until `count` messages have arrived or `seconds` have passed. */
    Line poll(Line request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.get("group"), Credentials.hook());
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(request.get("group"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.get("topic"), "*");
        consumer.start();
        List<MessageExt> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 1_000L * request.number("seconds", 30);
        while (found.size() < request.number("count", 1) && System.currentTimeMillis() < deadline) {
            found.addAll(consumer.poll(POLL_MS));
        }
        consumer.commitSync();
        consumer.shutdown();
        return ProducerCommands.bodies(found);
    }

    private void listen(DefaultMQPushConsumer consumer, Line request) {
        if (request.get("ordered", "false").equals("true")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> accept(messages, request)
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> accept(messages, request)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
    }

    /** Reports the messages; false on their first `fail` attempts. */
    private boolean accept(List<MessageExt> messages, Line request) {
        for (MessageExt message : messages) {
            new Line().with("event", "message")
                    .with("inbox", request.get("inbox"))
                    .with("body", ProducerCommands.text(message.getBody()))
                    .with("tags", message.getTags())
                    .with("keys", message.getKeys())
                    .with("message_id", message.getMsgId())
                    .with("queue_id", message.getQueueId())
                    .with("queue_offset", message.getQueueOffset())
                    .with("attempt", message.getReconsumeTimes() + 1)
                    .print();
            reply(message, request);
        }
        return messages.get(0).getReconsumeTimes() >= request.number("fail", 0);
    }

    private void reply(MessageExt message, Line request) {
        if (request.has("reply")) {
            try {
                byte[] body = (request.get("reply") + ProducerCommands.text(message.getBody())).getBytes();
                producers.producer(false).send(MessageUtil.createReplyMessage(message, body));
            } catch (Exception problem) {
                problem.printStackTrace();
            }
        }
    }
}
