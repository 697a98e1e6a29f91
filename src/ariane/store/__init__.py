"""The message store: commit log, consume queues and index, in the file formats of Apache RocketMQ 4.x."""
