"""The URL of billing's PostgreSQL database, for messages. Only the PostgreSQL store's modules import it."""

from services.common import postgresql_url
from services.common.postgresql_url import said

__all__ = ["place", "said"]


def place(url: str) -> str:
    """The database's name and host. ConfigurationError, which repeats nothing of it, if it is no URL."""
    return postgresql_url.place(url, "billing.database")
