"""The nameserver: where brokers say that they live and clients ask who holds a topic."""
