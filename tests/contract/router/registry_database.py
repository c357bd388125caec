"""A database for the routers' registry, on the run's PostgreSQL server, and what can be done to it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.contract.billing.postgresql import Server

NAME = "registry"


class RegistryDatabase:
    """One database of its own, empty at first."""

    def __init__(self, server: Server, url: str) -> None:
        self._server = server
        self.url = url

    def do(self, statement: str) -> list[tuple[object, ...]]:
        """One or more statements; the rows of the first."""
        with closing(self._server.connect(NAME)) as connection:
            cursor = connection.execute(statement)
            return list(cursor) if cursor.description else []

    def empty(self) -> None:
        """As after the migrations."""
        if self.do("SELECT to_regclass('registry_worker')") != [(None,)]:
            self.do("DELETE FROM registry_worker; DELETE FROM registry_router")

    def drop(self) -> None:
        """As it was made."""
        self.do("DROP SCHEMA public CASCADE; CREATE SCHEMA public")

    def cut(self, where: str = "true") -> None:
        """End the routers' connections, or some of them."""
        self._server.do(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            f"WHERE datname = '{NAME}' AND application_name = 'speedinfer-router' AND {where}"
        )

    @contextmanager
    def away(self) -> Iterator[None]:
        """Every connection ends, and no new one is let in."""
        self._server.do(f"ALTER DATABASE {NAME} ALLOW_CONNECTIONS false")
        try:
            self.cut()
            yield
        finally:
            self._server.do(f"ALTER DATABASE {NAME} ALLOW_CONNECTIONS true")


@contextmanager
def made(server: Server) -> Iterator[RegistryDatabase]:
    """The database, dropped at the end."""
    with server.database(NAME) as url:
        yield RegistryDatabase(server, url)
