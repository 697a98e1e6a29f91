import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The commands for producers: one plain, one with message trace, one for transactions, each started on first use. */
final class ProducerCommands {
    private static final int WAIT_SECONDS = 30;
    // Part of instance names, which must be unique: brokers look a client up by its id and push replies to it.
    private static final long PROCESS = ProcessHandle.current().pid();
    private final String nameserver;
    private final Map<String, DefaultMQProducer> started = new ConcurrentHashMap<>();
    private final Map<String, LocalTransactionState> checks = new ConcurrentHashMap<>();

    ProducerCommands(String nameserver) {
        this.nameserver = nameserver;
    }

    Line send(Line request) throws Exception {
        Message message = message(request, "body");
        DefaultMQProducer producer = producer(request.get("trace", "false").equals("true"));
        switch (request.get("mode", "sync")) {
            case "oneway" -> {
                producer.sendOneway(message);
                return new Line();
            }
            case "async" -> {
                CompletableFuture<SendResult> result = new CompletableFuture<>();
                producer.send(message, completing(result));
                return sendResultFields(result.get(WAIT_SECONDS, TimeUnit.SECONDS));
            }
            default -> {
                int queue = request.number("queue", -1);
                return sendResultFields(queue < 0
                        ? producer.send(message)
                        : producer.send(message, (queues, one, number) -> queues.get((Integer) number), queue));
            }
        }
    }

    Line batch(Line request) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; request.has("body" + i); i++) {
            messages.add(message(request, "body" + i));
        }
        return sendResultFields(producer(false).send(messages));
    }

    Line transaction(Line request) throws Exception {
        checks.put(request.get("body"), state(request.get("check", "commit")));
        TransactionMQProducer producer = (TransactionMQProducer) start("transactions", () -> {
            // A separate group: brokers check back with any producer of the group, and only this one knows the answers.
            TransactionMQProducer fresh = new TransactionMQProducer("transactions_" + PROCESS, Credentials.hook());
            fresh.setTransactionListener(new Outcomes());
            return fresh;
        });
        return sendResultFields(producer.sendMessageInTransaction(message(request, "body"), state(request.get("decision"))));
    }

    Line request(Line request) throws Exception {
        Message reply = producer(false).request(message(request, "body"), request.number("seconds", 0) * 1000L);
        return new Line().with("body", text(reply.getBody()));
    }

    Line query(Line request) throws Exception {
        long now = System.currentTimeMillis();
        QueryResult found = producer(false).queryMessage(request.get("topic"), request.get("key"), 32, 0, now + 60_000);
        return bodies(found.getMessageList());
    }

    /** By either kind of id: the client distinguishes them. */
    Line view(Line request) throws Exception {
        return bodies(List.of(producer(false).viewMessage(request.get("topic"), request.get("id_to_view"))));
    }

    DefaultMQProducer producer(boolean traced) throws Exception {
        String kind = traced ? "traced" : "plain";
        return start(kind, () -> new DefaultMQProducer("interop_" + kind, Credentials.hook(), traced, null));
    }

    static Line bodies(List<MessageExt> messages) {
        Line line = new Line();
        for (int i = 0; i < messages.size(); i++) {
            line.with("body" + i, text(messages.get(i).getBody()));
        }
        return line;
    }

    static String text(byte[] body) {
        return body == null ? "" : new String(body, StandardCharsets.UTF_8);
    }

    private synchronized DefaultMQProducer start(String kind, java.util.function.Supplier<DefaultMQProducer> make)
            throws Exception {
        DefaultMQProducer known = started.get(kind);
        if (known == null) {
            known = make.get();
            known.setNamesrvAddr(nameserver);
            known.setInstanceName("producer-" + kind + "-" + PROCESS);
            known.setSendMsgTimeout(10_000);
            known.start();
            started.put(kind, known);
        }
        return known;
    }

    private static Message message(Line request, String body) throws Exception {
        Message message = new Message(request.get("topic"), request.bytes(body));
        if (request.has("tags")) {
            message.setTags(request.get("tags"));
        }
        if (request.has("keys")) {
            message.setKeys(request.get("keys"));
        }
        message.setDelayTimeLevel(request.number("delay_level", 0));
        for (Map.Entry<String, String> field : request.all().entrySet()) {
            if (field.getKey().startsWith("p.")) {
                message.putUserProperty(field.getKey().substring(2), field.getValue());
            }
        }
        if (request.has("deliver_at")) {
            deliverAt(message, Long.parseLong(request.get("deliver_at")));
        }
        return message;
    }

    private static void deliverAt(Message message, long time) throws Exception {
        try {
            Message.class.getMethod("setDeliverTimeMs", long.class).invoke(message, time);
        } catch (NoSuchMethodException absent) {
            throw new ClientDriver.NotOffered("4.x clients know delay levels only");
        }
    }

    private static LocalTransactionState state(String word) {
        return switch (word) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }

    private static Line sendResultFields(SendResult result) {
        return new Line()
                .with("status", result.getSendStatus())
                .with("message_id", result.getMsgId())
                .with("offset_message_id", result.getOffsetMsgId())
                .with("queue_id", result.getMessageQueue().getQueueId())
                .with("queue_offset", result.getQueueOffset());
    }

    private static SendCallback completing(CompletableFuture<SendResult> future) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                future.complete(result);
            }

            @Override
            public void onException(Throwable problem) {
                future.completeExceptionally(problem);
            }
        };
    }

    /** Returns the state given with the transaction, and on a check the state given for that body. */
    private final class Outcomes implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            return (LocalTransactionState) state;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = text(message.getBody());
            new Line().with("event", "checked").with("inbox", "checks").with("body", body).print();
            return checks.getOrDefault(body, LocalTransactionState.UNKNOW);
        }
    }
}
