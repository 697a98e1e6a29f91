"""Transactional messages: half messages, their outcomes, and check requests for those without one."""

from ariane.broker.transactions.checks import TransactionChecks
from ariane.broker.transactions.outcomes import Transactions

__all__ = ["TransactionChecks", "Transactions"]
