import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Loads a broker with Apache's Java client: each line of standard input is a plan in JSON, each plan is answered by a
 * line {"event":"begin"} when measuring begins, {"event":"end"} when it ends, and then a line with the result.
 *
 * Run by bench/java/program.py, which reads the CPU time of the broker at the first two. One process runs many plans, against
 * one broker or several in turn, so that its own code is compiled once and is equally warm for all of them. The
 * serialisation of headers is that of the process: -Drocketmq.serialize.type=JSON or ROCKETMQ.
 */
public final class LoadProgram {
    // The client library prints to System.out too; its output must not mix with the results.
    private static final PrintStream OUT = System.out;

    private LoadProgram() {}

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = input.readLine(); text != null; text = input.readLine()) {
            print(run(JSON.parseObject(text, LoadPlan.class)));
        }
        // The client library leaves non-daemon threads running.
        System.exit(0);
    }

    private static LoadResult run(LoadPlan plan) {
        try {
            return load(plan).run(plan, new PrintedMarks());
        } catch (Throwable problem) {
            problem.printStackTrace();
            return LoadResult.failed(problem);
        }
    }

    private static Load load(LoadPlan plan) {
        return switch (plan.kind) {
            case "send" -> new SendLoad(new SingleSends());
            case "batch" -> new SendLoad(new BatchSends());
            case "transaction" -> new SendLoad(new TransactionSends());
            case "consume" -> new ConsumeLoad();
            default -> throw new IllegalArgumentException("no such kind of load: " + plan.kind);
        };
    }

    private static void print(Object line) {
        OUT.println(JSON.toJSONString(line));
        OUT.flush();
    }

    private static final class PrintedMarks implements Load.Marks {
        @Override
        public void begin() {
            print(Map.of("event", "begin"));
        }

        @Override
        public void end() {
            print(Map.of("event", "end"));
        }
    }
}
