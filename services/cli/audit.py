"""`speedinfer ledger verify`: the audit, of the running billing or of a copy, and against seals that were exported."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from speedinfer.billing.v1 import report_pb2, report_pb2_grpc

from services.billing import seal_checks, seal_export, seal_key
from services.billing.audit import audit
from services.billing.seal import Seal
from services.billing.store.open import open_copy
from services.billing.store.port import Reader
from services.cli import connection, output, seals
from services.cli.failure import CommandError
from services.cli.invocation import Invocation
from services.common.settings import Settings

# The audit reads every entry.
VERIFY_TIMEOUT_S = 3600.0
# How many differences from exported seals are told.
MAX_DIFFERENCES = 1_000
PAGE = 16

FIGURES = ("accounts", "transactions", "entries", "reservations", "seals")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the audit found."""

    problems: list[str]
    figures: dict[str, int]


def verify(invocation: Invocation, exported: Path | None, public_keys: Sequence[Path], copy: Path | None) -> int:
    """See `evidence.py`."""
    settings = invocation.settings()
    if exported is not None and not public_keys:
        # A key that comes from where the ledger comes from proves nothing against whoever has both.
        raise CommandError("--seals needs --public-key: the key's public half as it was exported with them")
    if copy is not None:
        keys = trusted_keys(settings, public_keys)
        with open_copy(copy) as reader:
            verdict = look(reader, keys, exported)
    else:
        verdict = _of_billing(settings, _read(public_keys), exported)
    return show(invocation, verdict, "the ledger" if copy is None else str(copy))


def show(invocation: Invocation, verdict: Verdict, name: str) -> int:
    """Print a verdict; answers the exit code."""
    problems = verdict.problems
    value = {"ok": not problems, "problems": problems, **verdict.figures}
    looked_at = ", ".join(f"{count} {noun}" for noun, count in verdict.figures.items())
    if not problems:
        invocation.show(value, lambda: f"{name} adds up: {looked_at}")
        return 0
    invocation.show(value, lambda: "\n".join(problems))
    output.print_error(f"{name} does not add up ({len(problems)} problems; {looked_at})")
    return 1


def look(reader: Reader, keys: seal_key.PublicKeys, exported: Path | None = None) -> Verdict:
    """Audit what a reader reads."""
    with reader.book() as book:
        findings = audit(book, keys.verify)
    problems = list(findings.problems)
    if exported is not None:
        problems += _differences(exported, _stored(reader), keys)
    return Verdict(problems, {name: getattr(findings, name) for name in FIGURES})


def _of_billing(settings: Settings, pem: bytes, exported: Path | None) -> Verdict:
    with connection.billing(settings) as billing:
        stub = report_pb2_grpc.ReportServiceStub(billing.channel)
        request = report_pb2.VerifyLedgerRequest(public_keys=pem.decode(errors="replace"))
        found = billing.call(stub.VerifyLedger, request, VERIFY_TIMEOUT_S)
        problems = list(found.problems)
        if exported is not None:
            problems += _differences(exported, seals.stored(billing), seal_key.read_public(pem))
    return Verdict(problems, {name: getattr(found, name) for name in FIGURES})


def _differences(exported: Path, stored: Iterable[Seal], keys: seal_key.PublicKeys) -> list[str]:
    found: list[str] = []
    count = 0

    def counted(read: Iterable[Seal]) -> Iterator[Seal]:
        nonlocal count
        for one in read:
            count += 1
            yield one

    try:
        with exported.open("rb") as file:
            for difference in seal_checks.compare(counted(seal_export.seals(file)), stored, keys.verify):
                found.append(difference)
                if len(found) >= MAX_DIFFERENCES:
                    return found
    except OSError as error:
        raise CommandError(f"{exported} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(f"{exported}: {error}") from None
    if not count:
        raise CommandError(f"{exported} holds no seal")
    return found


def _stored(reader: Reader) -> Iterator[Seal]:
    after = 0
    while page := reader.seals(after, PAGE):
        yield from page
        after = page[-1].number


def trusted_keys(settings: Settings, given: Sequence[Path]) -> seal_key.PublicKeys:
    """The public keys in the files that were given, and no others; where none was, that of billing's own key. CommandError
    where a file has none."""
    return seal_key.read_public(_read(given)) if given else seal_key.own_public(settings.seal_key_path)


def _read(given: Sequence[Path]) -> bytes:
    """What the files hold, one after another."""
    texts: list[bytes] = []
    for path in given:
        try:
            texts.append(path.read_bytes())
            # Each by itself, so that the one at fault is named.
            seal_key.read_public(texts[-1])
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError:
            raise CommandError(f"--public-key: {path} holds no Ed25519 public key in PEM form") from None
    return b"\n".join(texts)
