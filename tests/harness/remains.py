"""What a product leaves and shows, searched for canaries: logs, metrics, processes, the ledger's columns, and every other file.

Places where a secret belongs are named in ALLOWED; there it must be readable by its owner alone. A process's environment would
hold the admin token if it were set there instead of made, as operators may; no product of a test does that.
"""

import contextlib
import http.client
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.harness import canaries
from tests.harness.canaries import ADMIN_TOKEN, CREDENTIAL, IDEMPOTENCY_KEY, KEY, Canaries

SCRAPE_S = 5.0
# Kind -> where it may be, below the product's folder; for the ledger, `table.column`.
ALLOWED: Mapping[str, tuple[str, ...]] = {
    # `make run` shows its demo's key to whoever started it, and again at the next start.
    KEY: ("*/demo.json", "/run.out"),
    ADMIN_TOKEN: ("*/admin_token",),
    CREDENTIAL: ("*/registry.json", "*/.registry.json.*"),
    # The ledger must know a repeated request again: by its key, and by its content, of which the key is a part.
    IDEMPOTENCY_KEY: ("*/billing.db", "*/billing.db-wal", "reservation.idempotency_key", "reservation.asked"),
}


@dataclass
class Remains:
    """One product's."""

    folder: Path
    data_dir: Path
    # What was seen while services ran: name (a file's is its place) -> bytes.
    seen: dict[str, bytes] = field(default_factory=dict)

    def look_at_process(self, name: str, pid: int) -> None:
        """Note what the machine shows of a running service."""
        for part in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                self.seen[f"{name}'s {part}"] = Path(f"/proc/{pid}/{part}").read_bytes()

    def look_at_metrics(self, name: str, address: str) -> None:
        """Note a service's metrics; none where it does not answer (any more)."""
        connection = http.client.HTTPConnection(address, timeout=SCRAPE_S)
        try:
            connection.request("GET", "/metrics")
            self.seen[f"{name}'s metrics"] = connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def look_at_log_of_writes(self) -> None:
        """Note the ledger's write-ahead log, which is gone once billing has ended well."""
        path = self.data_dir / "billing.db-wal"
        with contextlib.suppress(OSError):
            self.seen[self._place(path)] = path.read_bytes()

    def leaks(self, known: Canaries = canaries.KNOWN) -> Iterator[str]:
        """One line for each canary in a place where it may not be."""
        token = self.data_dir / "admin_token"
        if token.exists():
            known.add(ADMIN_TOKEN, token.read_text().strip())
        for name, data in self.seen.items():
            hits = (hit for hit in known.find(data) if not _allowed(hit.kind, name))
            yield from (f"{name}, offset {hit.offset}: {hit.kind}" for hit in hits)
        if not self.folder.is_dir():
            yield f"{self.folder}: gone before it was searched"
        for path in sorted(self.folder.rglob("*")):
            if not path.is_file():
                continue
            for hit in known.find(path.read_bytes()):
                if not _allowed(hit.kind, self._place(path)):
                    yield f"{path}, offset {hit.offset}: {hit.kind}"
                elif path.stat().st_mode & 0o077:
                    yield f"{path}, offset {hit.offset}: {hit.kind}, which others may read"
        for column, data in self.columns():
            for hit in known.find(data):
                if not _allowed(hit.kind, column):
                    yield f"{self.data_dir / 'billing.db'}, {column}: {hit.kind}"

    def columns(self) -> Iterator[tuple[str, bytes]]:
        """All values of each column of the ledger, one after another; of a copy, so that nothing is changed."""
        path = self.data_dir / "billing.db"
        if not path.exists():
            return
        with tempfile.TemporaryDirectory() as scratch:
            for each in path.parent.glob("billing.db*"):
                shutil.copy(each, scratch)
            with contextlib.closing(sqlite3.connect(Path(scratch) / path.name)) as ledger:
                tables = ledger.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
                for (table,) in tables:
                    cursor = ledger.execute(f'SELECT * FROM "{table}"')
                    names = [described[0] for described in cursor.description]
                    for name, values in zip(names, zip(*cursor.fetchall(), strict=True), strict=False):
                        yield f"{table}.{name}", b"\0".join(map(_bytes, values))

    def _place(self, path: Path) -> str:
        return "/" + str(path.relative_to(self.folder))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _allowed(kind: str, place: str) -> bool:
    return any(fnmatch(place, pattern) for pattern in ALLOWED.get(kind, ()))
