"""The proofs of the ledger run over every store that the contract's suite runs over, with its fixtures."""

from tests.contract.billing.conftest import client, database, service
from tests.contract.conftest import postgresql

__all__ = ["client", "database", "postgresql", "service"]
