"""Which store the settings mean. The composition root imports it."""

from services.common.errors import ConfigurationError
from services.common.settings import Settings
from services.router.store.file import FileStore
from services.router.store.port import SharedStore, Store

POSTGRESQL = ("postgresql", "postgres")


def store_of(settings: Settings) -> Store:
    """A store that is not open yet. ConfigurationError says what is wrong with the setting, and repeats nothing of it."""
    return shared_store_of(settings) or FileStore(settings.registry_path)


def shared_store_of(settings: Settings) -> SharedStore | None:
    """The one that routers share, where there is one."""
    url = settings.router.database.get_secret_value()
    if not url:
        return None
    if url.partition("://")[0] not in POSTGRESQL:
        raise ConfigurationError("router.database: only postgresql://... is known; empty: a file of this router's own")
    # Its driver is not needed for files.
    from services.router.store.postgresql import PostgresqlStore

    return PostgresqlStore(url)
