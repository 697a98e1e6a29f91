import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;

/** A thread that sends until the load is over, and keeps what was acknowledged while it is measured. */
final class Worker extends Thread {
    final Latencies latencies = new Latencies();
    /** Requests, also before and after the measured time. */
    long acknowledged;
    /** Only in the measured time: while it warms up, a broker may be busy. */
    long failures;
    String firstError = "";

    private final Sends.Sender sender;
    private final Phase phase;

    Worker(Sends.Sender sender, Phase phase) {
        this.sender = sender;
        this.phase = phase;
    }

    @Override
    public void run() {
        while (!phase.isOver) {
            long began = System.nanoTime();
            String error = send();
            boolean isMeasured = phase.isMeasured;
            if (error.isEmpty()) {
                acknowledged++;
                if (isMeasured) {
                    latencies.add(System.nanoTime() - began);
                }
            } else if (isMeasured) {
                failures++;
                firstError = firstError.isEmpty() ? error : firstError;
            }
        }
    }

    /** What went wrong, or nothing. */
    private String send() {
        try {
            SendResult result = sender.send();
            return result.getSendStatus() == SendStatus.SEND_OK ? "" : result.getSendStatus().toString();
        } catch (Exception problem) {
            return problem.toString();
        }
    }
}
