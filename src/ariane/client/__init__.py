"""Clients: producers, consumers and administration, for Apache RocketMQ brokers and for Ariane's."""
