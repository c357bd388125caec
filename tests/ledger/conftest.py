"""The proofs of the ledger run over every store that the contract's suite runs over; the databases are the same."""

from tests.contract.billing.conftest import database

__all__ = ["database"]
