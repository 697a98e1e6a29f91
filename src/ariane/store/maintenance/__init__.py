"""Background work of a store: flush, derived files, recovery, retention."""
