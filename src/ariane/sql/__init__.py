"""SQL over topics and store directories, on this machine: duckdb over the Arrow decoder, or Spark for what is large.

wanted.py    which messages of a topic are looked at, before any SQL
progress.py  how many of them were scanned, and whether that is all
broker_table.py, store_table.py  a topic as batches: pulled from its brokers, or read from the files of a store
catalogs.py  which names a query may use: topics, and what is known about the cluster (cluster_tables.py)
dataset.py   such a topic as duckdb sees it: it asks for columns and conditions, and may ask more than once
duckdb_engine.py, spark_engine.py  a query to its rows
"""
