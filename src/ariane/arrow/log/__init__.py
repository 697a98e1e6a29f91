"""Planning and reading a store's log as Arrow batches."""
