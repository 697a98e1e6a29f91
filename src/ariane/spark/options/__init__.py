"""Options of the Spark source and sinks."""
