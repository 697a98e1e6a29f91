/** One kind of load. */
interface Load {
    /** Connects, loads for the time of the plan's warm-up and then for the measured time, and disconnects. A consumer
     * counts messages instead. */
    LoadResult run(LoadPlan plan, Marks marks) throws Exception;

    /** Learns when the measured time begins and ends. */
    interface Marks {
        void begin();

        void end();
    }
}
