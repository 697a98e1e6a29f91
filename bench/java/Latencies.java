import java.util.Arrays;
import java.util.List;

/** The latencies that one thread saw, in nanoseconds. */
final class Latencies {
    private long[] nanos = new long[1024];
    private int count;

    void add(long latency) {
        if (count == nanos.length) {
            nanos = Arrays.copyOf(nanos, 2 * count);
        }
        nanos[count++] = latency;
    }

    int count() {
        return count;
    }

    static long[] all(List<Latencies> parts) {
        long[] all = new long[parts.stream().mapToInt(Latencies::count).sum()];
        int position = 0;
        for (Latencies part : parts) {
            System.arraycopy(part.nanos, 0, all, position, part.count);
            position += part.count;
        }
        return all;
    }
}
