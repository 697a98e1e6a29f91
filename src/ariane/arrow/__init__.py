"""Stored records to Arrow batches, many at a time, with numpy and pyarrow and no Spark: pull answers and store files.

schema.py    the columns that a message has, and their Arrow types
decode.py    decode_records: concatenated records to one batch
log_plan.py  plan_log: which parts of a store directory have to be read
log_read.py  read_split: the batches of one such part
"""
