"""`speedinfer ledger verify`, `seal`, `seals`, `backup`, `restore`: how they are declared.

What they do is in `audit.py`, `seals.py` and `copies.py`, imported only when asked for: they bring the store and cryptography,
which no other command needs.
"""

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli import ledger
from services.cli.invocation import Invocation, command, new_app

# The noun with all of its verbs.
app = ledger.app

seals_app = new_app(
    "Seals: signed statements of what the ledger had come to. Keep exports where nobody who runs it can write."
)

SealsFile = Annotated[
    Path | None,
    typer.Option("--seals", metavar="FILE", help="Seals that were exported; the ledger must have them all."),
]
PublicKeys = Annotated[
    list[Path] | None,
    typer.Option(
        "--public-key",
        metavar="FILE",
        help="Public keys that seals may be signed with, and no others; repeatable; default: billing's own.",
    ),
]
Copy = Annotated[
    Path | None,
    typer.Option("--copy", metavar="FILE", help="A SQLite file, such as a backup, and not billing's ledger."),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; default: standard output.")
]


@command(app, "verify")
def verify(
    invocation: Invocation, exported: SealsFile = None, public_keys: PublicKeys = None, copy: Copy = None
) -> int | None:
    """Rebuild every figure from the entries, look at chains and seals; exit 1 and say what is wrong, if anything is."""
    return _done_in("audit").verify(invocation, exported, public_keys or [], copy)  # type: ignore[no-any-return]


@command(app, "seal")
def seal(invocation: Invocation) -> None:
    """Seal what has changed since the last seal, now and not only at its hour."""
    _done_in("seals").seal(invocation)


@command(seals_app, "export")
def export(
    invocation: Invocation,
    file: Output = None,
    after: Annotated[int, typer.Option(metavar="N", min=0, help="Only seals with greater numbers.")] = 0,
) -> None:
    """Write seals, one JSON object a line. A file that is there is replaced once the new one is whole."""
    _done_in("seals").export(invocation, file, after)


@command(seals_app, "key")
def key(invocation: Invocation, file: Output = None) -> None:
    """Write the public half of the key that signs, by which exported seals are proved."""
    _done_in("seals").key(invocation, file)


@command(app, "backup")
def backup(
    invocation: Invocation,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The copy; it may not exist yet.")],
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Do not audit it; `ledger verify --copy` does that later, anywhere.")
    ] = False,
    public_keys: PublicKeys = None,
) -> int | None:
    """Copy the ledger to one file while billing goes on writing, and audit the copy; exit 1 if it does not add up."""
    return _done_in("copies").backup(invocation, path, unverified, public_keys or [])  # type: ignore[no-any-return]


@command(app, "restore")
def restore(
    invocation: Invocation,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A copy that `ledger backup` made.")],
    replace: Annotated[bool, typer.Option("--replace", help="Put aside the ledger that is there.")] = False,
    public_keys: PublicKeys = None,
) -> None:
    """Put a copy in the place of the ledger, brought to this version, if it adds up. Billing must not run."""
    _done_in("copies").restore(invocation, path, replace, public_keys or [])


app.add_typer(seals_app, name="seals")


def _done_in(module: str) -> Any:
    return importlib.import_module(f"services.cli.{module}")
