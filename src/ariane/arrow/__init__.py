"""Vectorised decoder from stored records to Arrow batches, with numpy and pyarrow and without Spark.

It reads pull responses and store files.

schema.py    the columns of a message, and their Arrow types
decode.py    decode_records: concatenated records to one batch
log/plan.py  plan_log: which parts of a store directory have to be read
log/read.py  read_split: the batches of one such part
"""
