"""Files: the commit log, the consume queues and the index, byte for byte as Apache RocketMQ 4.x writes them."""
