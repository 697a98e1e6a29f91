"""Jobs that run Spark tasks but read no DataFrame rows: archive, replay, rebuild.

Each is a module with `run(spark, options, progress)`, which a pipeline file or a program calls. Messages do not pass
through the JVM: a task reads, works with numpy and pyarrow, and writes; the driver only gets a summary.
"""
