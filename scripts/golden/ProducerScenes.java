import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Everything a producer sends: single, one-way, batch, delayed, ordered, transactional, request and reply. */
final class ProducerScenes implements AutoCloseable {
    private static final int WAIT_SECONDS = 60;
    private final Driver.Servers servers;
    private final DefaultMQProducer producer;
    private SendResult sent;

    ProducerScenes(Driver.Servers servers) throws Exception {
        this.servers = servers;
        this.producer = start(new DefaultMQProducer("golden_producer"), "producer");
    }

    String sentId() {
        return sent.getOffsetMsgId();
    }

    String sentUniqueKey() {
        return sent.getMsgId();
    }

    void play() {
        Driver.step("send with tags, keys and properties", this::sendTagged);
        Driver.step("send async, one-way, compressed, delayed", this::sendOtherWays);
        Driver.step("send to a topic nobody made", () -> expectOk(producer.send(message("GoldenAuto", "auto"))));
        Driver.step("send a batch", this::sendBatch);
        Driver.step("send by key", () -> {
            for (int i = 0; i < 8; i++) {
                expectOk(producer.send(message("GoldenOrder", "step " + i), (queues, msg, key) -> queues.get(0), i));
            }
        });
        Driver.step("send signed", this::sendSigned);
        Driver.refused("send to the delay topic", () -> producer.send(message("SCHEDULE_TOPIC_XXXX", "no")));
        Driver.step("transactions", this::sendTransactions);
        Driver.step("request and reply", this::requestAndReply);
        Driver.step("make a topic from a producer", () -> producer.createTopic("TBW102", "GoldenMade", 2));
    }

    /** The same core in a JVM that uses the older, long-named requests. */
    void playPlain() {
        Driver.step("plain send", this::sendTagged);
        Driver.step("plain request and reply", this::requestAndReply);
    }

    private void sendTagged() throws Exception {
        for (int i = 0; i < 12; i++) {
            Message message = message("GoldenNormal", "message " + i + " 订单");
            message.setTags(i % 2 == 0 ? "TagA" : "TagB");
            message.setKeys("key-" + i + " shared");
            message.putUserProperty("colour", "blue");
            message.setFlag(i);
            sent = expectOk(producer.send(message));
        }
        for (int i = 0; i < 6; i++) {
            Message message = message("GoldenSql", "sql " + i);
            message.putUserProperty("price", String.valueOf(i));
            expectOk(producer.send(message));
        }
        expectOk(producer.send(message("GoldenRetry", "fails once")));
    }

    private void sendOtherWays() throws Exception {
        CountDownLatch answered = new CountDownLatch(1);
        producer.send(message("GoldenNormal", "async"), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                answered.countDown();
            }

            @Override
            public void onException(Throwable problem) {
                problem.printStackTrace();
            }
        });
        Driver.check(answered.await(WAIT_SECONDS, TimeUnit.SECONDS), "no answer to the async send");
        producer.sendOneway(message("GoldenNormal", "one-way"));
        expectOk(producer.send(message("GoldenNormal", "compress me ".repeat(600))));
        Message delayed = message("GoldenDelay", "later");
        delayed.setDelayTimeLevel(1);
        expectOk(producer.send(delayed));
    }

    private void sendBatch() throws Exception {
        List<Message> batch = IntStream.range(0, 5).mapToObj(i -> message("GoldenBatch", "item " + i)).toList();
        expectOk(producer.send(batch));
    }

    private void sendSigned() throws Exception {
        // Test credentials, listed in the header comment of record_frames.py so that tests can check the signature.
        AclClientRPCHook signer = new AclClientRPCHook(new SessionCredentials("goldenAccess", "goldenSecret"));
        DefaultMQProducer signed = start(new DefaultMQProducer("golden_signed", signer), "signed");
        expectOk(signed.send(message("GoldenNormal", "signed")));
        signed.shutdown();
    }

    private void sendTransactions() throws Exception {
        CountDownLatch checked = new CountDownLatch(1);
        TransactionMQProducer transactional = new TransactionMQProducer("golden_transactions");
        transactional.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        start(transactional, "transactional");
        for (LocalTransactionState state : LocalTransactionState.values()) {
            transactional.sendMessageInTransaction(message("GoldenTx", state.name()), state);
        }
        Driver.check(checked.await(WAIT_SECONDS, TimeUnit.SECONDS), "the broker never asked about the open transaction");
        transactional.shutdown();
    }

    private void requestAndReply() throws Exception {
        DefaultMQProducer replier = start(new DefaultMQProducer("golden_replier"), "replier");
        CountDownLatch replied = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("golden_request_consumer");
        consumer.setNamesrvAddr(servers.nameserver());
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("request-consumer");
        consumer.subscribe("GoldenRequest", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    replier.send(MessageUtil.createReplyMessage(message, "reply".getBytes(StandardCharsets.UTF_8)));
                    replied.countDown();
                }
            } catch (Exception problem) {
                problem.printStackTrace();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Message reply = producer.request(message("GoldenRequest", "question"), WAIT_SECONDS * 1000L);
        Driver.check(new String(reply.getBody(), StandardCharsets.UTF_8).equals("reply"), "wrong reply");
        Driver.check(replied.await(WAIT_SECONDS, TimeUnit.SECONDS), "the broker never answered the replier");
        consumer.shutdown();
        replier.shutdown();
    }

    private <P extends DefaultMQProducer> P start(P fresh, String instance) throws Exception {
        fresh.setNamesrvAddr(servers.nameserver());
        fresh.setClientIP("127.0.0.1");
        fresh.setInstanceName(instance);
        fresh.start();
        return fresh;
    }

    private static Message message(String topic, String text) {
        return new Message(topic, text.getBytes(StandardCharsets.UTF_8));
    }

    private static SendResult expectOk(SendResult result) {
        Driver.check(result.getSendStatus() == SendStatus.SEND_OK, "send status " + result.getSendStatus());
        return result;
    }

    @Override
    public void close() {
        producer.shutdown();
    }
}
