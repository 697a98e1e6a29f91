"""Producers, consumers and administration, for brokers of Apache RocketMQ and for ours."""
