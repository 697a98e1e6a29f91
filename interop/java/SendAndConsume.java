import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Creates a topic, sends messages to it and consumes them; the nameserver provides all routes.
 *
 * Run by interop/nameserver.py as: SendAndConsume nameserver topic count. Prints "consumed N".
 */
public final class SendAndConsume {
    private static final int WAIT_SECONDS = 60;

    private SendAndConsume() {}

    public static void main(String[] args) throws Exception {
        String nameserver = args[0];
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        DefaultMQProducer producer = new DefaultMQProducer(topic + "_producer");
        producer.setNamesrvAddr(nameserver);
        producer.start();
        producer.createTopic("TBW102", topic, 4);
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "TagA", ("java " + i).getBytes(StandardCharsets.UTF_8));
            if (producer.send(message).getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("message " + i + " was not stored");
            }
        }
        System.out.println("consumed " + consume(nameserver, topic, count));
        producer.shutdown();
        // The client libraries leave non-daemon threads running.
        System.exit(0);
    }

    private static int consume(String nameserver, String topic, int count) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        CountDownLatch enough = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic + "_consumer");
        consumer.setNamesrvAddr(nameserver);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "TagA");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> seen.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            if (seen.size() == count) {
                enough.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        enough.await(WAIT_SECONDS, TimeUnit.SECONDS);
        consumer.shutdown();
        return seen.size();
    }
}
