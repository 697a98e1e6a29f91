"""Reading topics and stores in Spark, as batches and streams."""
