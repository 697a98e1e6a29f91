"""Two-phase sends: half messages, their outcome, and questions to producers that do not tell it."""

from ariane.broker.transactions.checks import TransactionChecks
from ariane.broker.transactions.outcomes import Transactions

__all__ = ["TransactionChecks", "Transactions"]
