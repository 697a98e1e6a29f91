import java.util.Arrays;
import java.util.List;

/** Counts and latencies of the measured time; the fields of JavaResult in bench/java/program.py. */
public final class LoadResult {
    public final String event = "result";
    public long messages;
    public long requests;
    public long failures;
    public double seconds;
    public double p50Us;
    public double p99Us;
    public double p999Us;
    /** The first failed request, or why the load did not run at all. */
    public String firstError = "";
    public boolean failed;

    static LoadResult failed(Throwable problem) {
        LoadResult result = new LoadResult();
        result.failed = true;
        result.firstError = problem.toString();
        return result;
    }

    void add(List<Worker> workers) {
        for (Worker worker : workers) {
            requests += worker.latencies.count();
            failures += worker.failures;
            firstError = firstError.isEmpty() ? worker.firstError : firstError;
        }
        long[] nanos = Latencies.all(workers.stream().map(worker -> worker.latencies).toList());
        if (nanos.length > 0) {
            Arrays.sort(nanos);
            p50Us = percentile(nanos, 0.5);
            p99Us = percentile(nanos, 0.99);
            p999Us = percentile(nanos, 0.999);
        }
    }

    private static double percentile(long[] sorted, double share) {
        return sorted[(int) Math.min(sorted.length - 1, Math.round(share * (sorted.length - 1)))] / 1e3;
    }
}
