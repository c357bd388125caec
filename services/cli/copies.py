"""`speedinfer ledger backup` and `ledger restore`: copies of a SQLite ledger, each audited before it is relied on.

Both work on the database's file and so on the machine that has it. A backup needs no pause of billing; a restore needs it to
be stopped.
"""

import time
from pathlib import Path

from services.billing import seal_key
from services.billing.store import open as stores
from services.billing.store.port import Reader
from services.cli import audit
from services.cli.failure import CommandError
from services.cli.invocation import Invocation


def backup(invocation: Invocation, path: Path, unverified: bool) -> int:
    """See `evidence.py`."""
    settings = invocation.settings()
    stores.backup(settings.database_url, path)
    if unverified:
        invocation.show({"file": str(path), "verified": False}, lambda: f"copied to {path}, not verified")
        return 0
    with stores.open_copy(path) as reader:
        verdict = audit.look(reader, seal_key.own_public(settings.seal_key_path))
    return audit.show(invocation, verdict, str(path))


def restore(invocation: Invocation, path: Path, replace: bool, public_key: Path | None) -> None:
    """See `evidence.py`."""
    settings = invocation.settings()
    keys = audit.read_keys(public_key) if public_key is not None else seal_key.own_public(settings.seal_key_path)
    verdicts: list[audit.Verdict] = []

    def look(reader: Reader) -> None:
        verdicts.append(audit.look(reader, keys))
        if problems := verdicts[-1].problems:
            raise CommandError("\n".join([*problems, f"{path} does not add up; nothing was changed"]))

    aside = stores.restore(settings.database_url, path, lambda: time.time_ns() // 1_000_000, look, replace=replace)
    value = {"restored": str(path), "put_aside": str(aside) if aside else None, **verdicts[-1].figures}
    invocation.show(value, lambda: f"restored from {path}" + (f"; the old one is {aside}" if aside else ""))
