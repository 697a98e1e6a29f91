/** What to do against which broker; the fields of JavaPlan in bench/java/program.py. */
public final class LoadPlan {
    public String kind;
    public String nameserver;
    public String topic;
    public int threads;
    public int bodyBytes;
    public int batch;
    public long messages;
    public double warmSeconds;
    public double seconds;

    long warmNanos() {
        return (long) (warmSeconds * 1e9);
    }

    long nanos() {
        return (long) (seconds * 1e9);
    }

    /** Random letters, as in Apache's benchmark programs. */
    byte[] body() {
        byte[] body = new byte[bodyBytes];
        java.util.Random letters = new java.util.Random(17);
        for (int i = 0; i < bodyBytes; i++) {
            body[i] = (byte) ('a' + letters.nextInt(26));
        }
        return body;
    }
}
