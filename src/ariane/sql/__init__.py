"""SQL over topics and store directories, on this machine: duckdb over the Arrow decoder, or Spark for large data.

tables.py         interfaces of tables and catalogs, scan filters, scan progress, column names
sources.py        a topic as batches: pulled from its brokers, or read from the files of a store
catalog.py        the table names of a query: topics, and metadata of the cluster
duckdb_engine.py  runs a query with duckdb, which scans tables with the columns and conditions that it needs
spark_engine.py   runs a query with Spark
rows.py           query results, and their values as JSON
"""
