import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions that commit: a half message, and its outcome as a one-way request. */
final class TransactionSends implements Sends {
    @Override
    public DefaultMQProducer producer(String group) {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setTransactionListener(new Commits());
        return producer;
    }

    @Override
    public Sender sender(DefaultMQProducer producer, LoadPlan plan) {
        byte[] body = plan.body();
        return () -> producer.sendMessageInTransaction(new Message(plan.topic, body), null);
    }

    @Override
    public boolean isStoredWhenAcknowledged() {
        return false;
    }

    private static final class Commits implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object unused) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
