/** How far a load is, as its threads see it. */
final class Phase {
    volatile boolean isMeasured;
    volatile boolean isOver;
}
