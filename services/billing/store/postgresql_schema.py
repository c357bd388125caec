"""The migrations of billing's PostgreSQL database. Only the PostgreSQL store imports it."""

from pathlib import Path

from services.billing.store.postgresql_connection import Connection
from services.common import postgresql_schema
from services.common.postgresql_schema import Owner

FOLDER = Path(__file__).parent / "migrations" / "postgresql"


def migrate(connection: Connection, now_ms: int, place: str) -> None:
    """Bring the connection's schema to the newest version, or refuse it with a ConfigurationError that says why. Of several
    processes that start at once, one does it and the others wait."""
    postgresql_schema.migrate(connection, Owner("billing", FOLDER), now_ms, place)


def check(connection: Connection, place: str) -> None:
    """Refuse what `migrate` would refuse, and change nothing."""
    postgresql_schema.check(connection, Owner("billing", FOLDER), place)
