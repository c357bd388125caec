"""`speedinfer ledger seal` and `speedinfer ledger seals`: seal what has changed, and take seals out of the database's reach."""

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from speedinfer.billing.v1 import seal_pb2, seal_pb2_grpc

from services.billing import seal_export
from services.billing.seal import Seal, read, sealed
from services.cli import connection
from services.cli.failure import CommandError
from services.cli.invocation import Invocation
from services.common.settings import Settings

# What was not sealed for long takes a while to be read.
SEAL_TIMEOUT_S = 600.0
EXPORT_TIMEOUT_S = 3600.0


def seal(invocation: Invocation) -> None:
    """See `evidence.py`."""
    with connection.billing(invocation.settings()) as billing:
        stub = seal_pb2_grpc.SealServiceStub(billing.channel)
        made = billing.call(stub.SealLedger, seal_pb2.SealLedgerRequest(), SEAL_TIMEOUT_S).seals
    numbers = [one.number for one in made]

    def text() -> str:
        return f"sealed: {', '.join(f'seal {number}' for number in numbers)}" if numbers else "nothing has changed"

    invocation.show({"seals": numbers}, text)


def export(invocation: Invocation, file: Path | None, after: int) -> None:
    """See `evidence.py`."""
    if invocation.as_json and file is None:
        raise CommandError("seals are written one a line and not as one value; name a file with --output")
    with connection.billing(invocation.settings()) as billing:
        lines = map(_line, stored(billing, after))
        if file is None:
            sys.stdout.writelines(lines)
            sys.stdout.flush()
            return
        written = _write(file, lines)
    invocation.show({"file": str(file), "seals": written}, lambda: f"{written} seals written to {file}")


def key(invocation: Invocation, file: Path | None) -> None:
    """See `evidence.py`."""
    settings = invocation.settings()
    found = _key(settings)
    if file is not None:
        _write(file, iter([found.public_key]))
        invocation.show({"file": str(file), "key_id": found.key_id}, lambda: f"key {found.key_id} written to {file}")
        return
    value = {"key_id": found.key_id, "public_key": found.public_key}
    invocation.show(value, lambda: found.public_key.rstrip("\n"))


def stored(billing: connection.Connection, after: int = 0) -> Iterator[Seal]:
    """The ledger's seals, in order, as they are stored: number, statement, signature and key only, and none of them checked."""
    stub = seal_pb2_grpc.SealServiceStub(billing.channel)
    request = seal_pb2.ExportSealsRequest(after=after)
    for answer in billing.stream(stub.ExportSeals, request, EXPORT_TIMEOUT_S):
        one = answer.seal
        yield Seal(one.number, 0, 0, 0, one.statement, one.signature, one.key_id)


def _line(one: Seal) -> str:
    try:
        return seal_export.line(sealed(read(one.statement), one.signature, one.key_id))
    except ValueError as error:
        raise CommandError(f"seal {one.number}: its statement cannot be read ({error}); nothing was written") from None


def _key(settings: Settings) -> seal_pb2.GetSealKeyResponse:
    with connection.billing(settings) as billing:
        stub = seal_pb2_grpc.SealServiceStub(billing.channel)
        return billing.call(stub.GetSealKey, seal_pb2.GetSealKeyRequest())


def _write(file: Path, lines: Iterator[str]) -> int:
    """Write a file whole or not at all; answers how many lines."""
    draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    count = 0
    try:
        with draft.open("x", newline="") as target:
            for count, text in enumerate(lines, 1):  # noqa: B007 - counted for the caller
                target.write(text)
            target.flush()
            os.fsync(target.fileno())
        draft.replace(file)
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
    return count
