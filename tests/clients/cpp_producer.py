"""Sends one message with Apache's own C++ client (the `rocketmq` wheel) and prints the result.

Run as a process of its own: the library starts threads and writes logs under HOME.
"""

import sys

from rocketmq.client import Message, Producer

name_server, topic, body = sys.argv[1:]
producer = Producer("cpp_producer_group")
producer.set_namesrv_addr(name_server)
producer.start()
message = Message(topic)
message.set_keys("key-1")
message.set_tags("TagA")
message.set_body(body)
result = producer.send_sync(message)
print(result.status, result.offset, flush=True)
producer.shutdown()
