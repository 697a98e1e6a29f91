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

/** What a guest does with producers: one plain, one that reports traces, one for transactions, each made when needed. */
final class GuestProducers {
    private static final int WAIT_SECONDS = 30;
    // In names that no other guest may have: brokers find a client by its id, and push replies to it.
    private static final long PROCESS = ProcessHandle.current().pid();
    private final String nameserver;
    private final Map<String, DefaultMQProducer> started = new ConcurrentHashMap<>();
    private final Map<String, LocalTransactionState> checks = new ConcurrentHashMap<>();

    GuestProducers(String nameserver) {
        this.nameserver = nameserver;
    }

    Line send(Line ask) throws Exception {
        Message message = message(ask, "body");
        DefaultMQProducer producer = producer(ask.get("trace", "false").equals("true"));
        switch (ask.get("mode", "sync")) {
            case "oneway" -> {
                producer.sendOneway(message);
                return new Line();
            }
            case "async" -> {
                CompletableFuture<SendResult> result = new CompletableFuture<>();
                producer.send(message, completing(result));
                return told(result.get(WAIT_SECONDS, TimeUnit.SECONDS));
            }
            default -> {
                int queue = ask.number("queue", -1);
                return told(queue < 0
                        ? producer.send(message)
                        : producer.send(message, (queues, one, number) -> queues.get((Integer) number), queue));
            }
        }
    }

    Line batch(Line ask) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; ask.has("body" + i); i++) {
            messages.add(message(ask, "body" + i));
        }
        return told(producer(false).send(messages));
    }

    Line transaction(Line ask) throws Exception {
        checks.put(ask.get("body"), state(ask.get("check", "commit")));
        TransactionMQProducer producer = (TransactionMQProducer) start("transactions", () -> {
            // A group of its own: brokers ask any producer of the group, and only this one knows the answers.
            TransactionMQProducer fresh = new TransactionMQProducer("transactions_" + PROCESS, GuestAccount.hook());
            fresh.setTransactionListener(new Outcomes());
            return fresh;
        });
        return told(producer.sendMessageInTransaction(message(ask, "body"), state(ask.get("decision"))));
    }

    Line request(Line ask) throws Exception {
        Message reply = producer(false).request(message(ask, "body"), ask.number("seconds", 0) * 1000L);
        return new Line().with("body", text(reply.getBody()));
    }

    Line query(Line ask) throws Exception {
        long now = System.currentTimeMillis();
        QueryResult found = producer(false).queryMessage(ask.get("topic"), ask.get("key"), 32, 0, now + 60_000);
        return bodies(found.getMessageList());
    }

    /** By either kind of id: the client tells them apart. */
    Line view(Line ask) throws Exception {
        return bodies(List.of(producer(false).viewMessage(ask.get("topic"), ask.get("id_to_view"))));
    }

    DefaultMQProducer producer(boolean traced) throws Exception {
        String kind = traced ? "traced" : "plain";
        return start(kind, () -> new DefaultMQProducer("guest_" + kind, GuestAccount.hook(), traced, null));
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

    private static Message message(Line ask, String body) throws Exception {
        Message message = new Message(ask.get("topic"), ask.bytes(body));
        if (ask.has("tags")) {
            message.setTags(ask.get("tags"));
        }
        if (ask.has("keys")) {
            message.setKeys(ask.get("keys"));
        }
        message.setDelayTimeLevel(ask.number("delay_level", 0));
        for (Map.Entry<String, String> field : ask.all().entrySet()) {
            if (field.getKey().startsWith("p.")) {
                message.putUserProperty(field.getKey().substring(2), field.getValue());
            }
        }
        if (ask.has("deliver_at")) {
            deliverAt(message, Long.parseLong(ask.get("deliver_at")));
        }
        return message;
    }

    private static void deliverAt(Message message, long time) throws Exception {
        try {
            Message.class.getMethod("setDeliverTimeMs", long.class).invoke(message, time);
        } catch (NoSuchMethodException absent) {
            throw new Guest.NotOffered("4.x clients know delay levels only");
        }
    }

    private static LocalTransactionState state(String word) {
        return switch (word) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }

    private static Line told(SendResult result) {
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

    /** The local transaction comes to what it was told; a check comes to what was told for that body. */
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
