"""`speedinfer ledger backup` and `ledger restore`: copies of a SQLite ledger, each audited before it is relied on.

Both work on the database's file and so on the machine that has it. A backup needs no pause of billing; a restore needs it to
be stopped.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from services.billing.store import open as stores
from services.billing.store.port import Reader
from services.cli import audit
from services.cli.failure import CommandError
from services.cli.invocation import Invocation


def backup(invocation: Invocation, path: Path, unverified: bool, public_keys: Sequence[Path]) -> int:
    """See `evidence.py`."""
    settings = invocation.settings()
    if unverified:
        stores.backup(settings.database_url, path)
        invocation.show({"file": str(path), "verified": False}, lambda: f"copied to {path}, not verified")
        return 0
    # What is wrong with a key is said before a copy is made.
    keys = audit.trusted_keys(settings, public_keys)
    stores.backup(settings.database_url, path)
    with stores.open_copy(path) as reader:
        verdict = audit.look(reader, keys)
    return audit.show(invocation, verdict, str(path))


def restore(invocation: Invocation, path: Path, replace: bool, public_keys: Sequence[Path]) -> None:
    """See `evidence.py`."""
    settings = invocation.settings()
    keys = audit.trusted_keys(settings, public_keys)
    verdicts: list[audit.Verdict] = []

    def look(reader: Reader) -> None:
        verdicts.append(audit.look(reader, keys))
        if problems := verdicts[-1].problems:
            raise CommandError("\n".join([*problems, f"{path} does not add up; nothing was changed"]))

    aside = stores.restore(settings.database_url, path, lambda: time.time_ns() // 1_000_000, look, replace=replace)
    value = {"restored": str(path), "put_aside": str(aside) if aside else None, **verdicts[-1].figures}
    invocation.show(value, lambda: f"restored from {path}" + (f"; the old one is {aside}" if aside else ""))
