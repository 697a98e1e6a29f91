import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Makes a real Java client send every kind of request it knows, for record_frames.py to record.
 *
 * Run by record_frames.py as: Driver scene nameserver cluster broker brokerAddress, where scene is "all" or "plain";
 * "plain" is for a JVM that is set to use the older, long-named send requests. Prints a line a step; exits 1 if one failed.
 */
public final class Driver {
    /** Where the servers are, as the recorder started them. */
    record Servers(String nameserver, String cluster, String broker, String brokerAddress) {}

    interface Step {
        void run() throws Exception;
    }

    private static final List<String> failures = new ArrayList<>();

    private Driver() {}

    public static void main(String[] args) throws Exception {
        Servers servers = new Servers(args[1], args[2], args[3], args[4]);
        if (args[0].equals("plain")) {
            try (ProducerScenes producers = new ProducerScenes(servers)) {
                producers.playPlain();
            }
        } else {
            playAll(servers);
        }
        failures.forEach(System.out::println);
        // The client libraries leave threads behind that are no daemons.
        System.exit(failures.isEmpty() ? 0 : 1);
    }

    private static void playAll(Servers servers) throws Exception {
        try (AdminScenes admin = new AdminScenes(servers)) {
            admin.createTopics();
            try (ProducerScenes producers = new ProducerScenes(servers);
                    ConsumerScenes consumers = new ConsumerScenes(servers)) {
                producers.play();
                consumers.play();
                admin.playNameserver();
                admin.playBroker(producers.sentId(), producers.sentUniqueKey());
                admin.playGroups(consumers.firstClientId(), producers.sentId());
            }
            admin.playRemovals();
        }
    }

    /** One step failing is reported at the end; the others are still worth recording. */
    static void step(String name, Step body) {
        try {
            body.run();
            System.out.println("ok " + name);
        } catch (Exception | AssertionError problem) {
            failures.add("FAILED " + name + ": " + problem);
        }
    }

    /** A step that may have to wait for state of the servers, which has no event to wait for. */
    static void eventually(String name, Step body) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        step(name, () -> {
            while (true) {
                try {
                    body.run();
                    return;
                } catch (Exception | AssertionError problem) {
                    if (System.nanoTime() > deadline) {
                        throw problem;
                    }
                    Thread.sleep(500);
                }
            }
        });
    }

    /** A step whose point is the error answer. */
    static void refused(String name, Step body) {
        try {
            body.run();
        } catch (Exception expected) {
            System.out.println("ok " + name + " (refused)");
            return;
        }
        failures.add("FAILED " + name + ": was not refused");
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
