"""`speedinfer certs`: a development CA and short-lived identities for the sidecars (docs/guides/certificates.md).

Keys are written to their files and shown nowhere.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli import output, secret_folder
from services.cli.failure import CommandError
from services.cli.invocation import Invocation, command, new_app
from services.common.certificates import (
    IDENTITIES,
    Authority,
    CertificateError,
    Pair,
    Told,
    identity,
    is_trusted,
    make_authority,
    tell,
)
from services.common.settings import Settings

app = new_app("Certificates for the sidecars: a development CA and short-lived identities.")

AUTHORITY, PUBLIC = "ca", "public"
CERTIFICATE, KEY, TRUST = "tls.crt", "tls.key", "ca.crt"
AUTHORITY_DAYS = 365
MAX_DAYS = 90
# Names under which a service is reached in a compose file or on one machine.
LOCAL_NAMES = ("localhost", "127.0.0.1")

Days = Annotated[int, typer.Option("--days", min=1, max=MAX_DAYS, help="How long an identity is good for.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--public-name", help="A name or address under which clients reach the edge; may be given again."),
]
Who = Annotated[
    list[str] | None, typer.Argument(help="edge, router, billing, finance, operator, public; default: all.")
]
Within = Annotated[
    int | None,
    typer.Option("--within-hours", min=0, help="Only those that expire within so many hours; for a timer."),
]


@command(app, "make")
def make(invocation: Invocation, days: Days = 7, public_name: Names = None) -> None:
    """Make the CA and every identity that is not there yet; what is there stays as it is."""
    settings = invocation.settings()
    folder = settings.certificates_path
    if secret_folder.read(folder / AUTHORITY, CERTIFICATE) is None:
        pair = make_authority(settings.sidecar.trust_domain, _now(), timedelta(days=AUTHORITY_DAYS))
        secret_folder.write(folder / AUTHORITY, {CERTIFICATE: pair.certificate, KEY: pair.key})
    authority = _authority(settings)
    missing = [name for name in _all() if secret_folder.read(folder / name, CERTIFICATE) is None]
    for name in missing:
        names = [*LOCAL_NAMES, *(public_name or [])] if name == PUBLIC else [name, *LOCAL_NAMES]
        _issue(folder / name, authority, name, names, days)
    _warn_of_end(authority, days)
    for name in _all():
        told = _told(folder / name)
        if told is not None and told.not_after <= _now():
            raise CommandError(f"{name} in {folder / name} has expired; run `speedinfer certs renew {name}`")
    _show(invocation, settings, missing, f"nothing was missing in {folder}")


@command(app, "renew")
def renew(invocation: Invocation, who: Who = None, within_hours: Within = None, days: Days = 7) -> None:
    """Issue identities anew, under the names that they have; sidecars take them up without a restart."""
    settings = invocation.settings()
    authority = _authority(settings)
    renewed = []
    for name in _wanted(who):
        folder = settings.certificates_path / name
        told = _told(folder)
        if told is None:
            raise CommandError(f"there is no certificate of {name} in {folder}; run `speedinfer certs make`")
        if not who and name == PUBLIC and not _is_ours(folder, authority):
            # Its issuer renews it. Whoever names it wants ours instead.
            output.print_note(
                f"{name} is of another CA and stays; `speedinfer certs renew {name}` puts ours in its place"
            )
            continue
        if within_hours is not None and told.not_after > _now() + timedelta(hours=within_hours):
            continue
        _issue(folder, authority, name, told.names, days)
        renewed.append(name)
    _warn_of_end(authority, days)
    _show(invocation, settings, renewed, "none expires so soon")


@command(app, "show")
def show(invocation: Invocation) -> int:
    """What there is: identities, names, expiry; no key. Exit code 1 if one has expired or is not of the CA beside it."""
    settings = invocation.settings()
    rows = list(_rows(settings, (AUTHORITY, *_all())))
    if not rows:
        raise CommandError(f"there are no certificates in {settings.certificates_path}; run `speedinfer certs make`")
    invocation.show(rows, lambda: _table(rows))
    return int(any(row["state"] != "good" for row in rows))


def _all() -> Sequence[str]:
    return (*IDENTITIES, PUBLIC)


def _wanted(who: Sequence[str] | None) -> Sequence[str]:
    if unknown := [name for name in who or () if name not in _all()]:
        raise CommandError(f"there is no identity {unknown[0]!r}; there are {', '.join(_all())}")
    return tuple(dict.fromkeys(who)) if who else _all()


def _authority(settings: Settings) -> Authority:
    folder = settings.certificates_path / AUTHORITY
    certificate, key = secret_folder.read(folder, CERTIFICATE), secret_folder.read(folder, KEY)
    if certificate is None or key is None:
        raise CommandError(f"there is no CA with its key in {folder}; run `speedinfer certs make`")
    try:
        authority = Authority(Pair(certificate, key))
    except CertificateError as error:
        raise CommandError(f"{folder}: {error}") from None
    ends = tell(certificate).not_after
    if ends <= _now():
        raise CommandError(f"the CA in {folder} ended on {ends:%Y-%m-%d}; move it away and run `speedinfer certs make`")
    if authority.trust_domain != settings.sidecar.trust_domain:
        raise CommandError(
            f"the CA in {folder} is of the trust domain {authority.trust_domain or '(none)'}, and the setting"
            f" sidecar.trust_domain is {settings.sidecar.trust_domain}"
        )
    return authority


def _issue(folder: Path, authority: Authority, name: str, names: Sequence[str], days: int) -> None:
    lifetime = timedelta(days=days)
    try:
        if name == PUBLIC:
            pair = authority.issue_public(names, _now(), lifetime)
        else:
            pair = authority.issue(name, names, _now(), lifetime)
    except CertificateError as error:
        raise CommandError(str(error)) from None
    # While a CA is changed there are both in it, and they stay.
    trusted = secret_folder.read(folder, TRUST)
    if trusted is None or not is_trusted(authority.certificate, trusted):
        trusted = authority.certificate
    secret_folder.write(folder, {CERTIFICATE: pair.certificate, KEY: pair.key, TRUST: trusted})


def _is_ours(folder: Path, authority: Authority) -> bool:
    certificate = secret_folder.read(folder, CERTIFICATE)
    return certificate is not None and is_trusted(certificate, authority.certificate)


def _warn_of_end(authority: Authority, days: int) -> None:
    """Nothing that a CA issues outlives it."""
    ends = tell(authority.certificate).not_after
    if ends <= _now() + timedelta(days=days):
        output.print_note(
            f"the CA ends on {ends:%Y-%m-%d}, and what it issues with it; docs/guides/certificates.md says how to change it"
        )


def _told(folder: Path) -> Told | None:
    certificate = secret_folder.read(folder, CERTIFICATE)
    if certificate is None:
        return None
    try:
        return tell(certificate)
    except CertificateError as error:
        raise CommandError(f"{folder / CERTIFICATE} {error}") from None


def _show(invocation: Invocation, settings: Settings, made: Sequence[str], otherwise: str) -> None:
    rows = list(_rows(settings, made))
    invocation.show(rows, lambda: _table(rows) if rows else otherwise)


def _rows(settings: Settings, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        folder = settings.certificates_path / name
        told = _told(folder)
        if told is None:
            continue
        yield {
            "name": name,
            "identity": next(iter(told.uris), None),
            "names": list(told.names),
            "not_after": told.not_after.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "serial": told.serial,
            "state": _state(settings, name, told),
            "folder": str(folder),
        }


def _state(settings: Settings, name: str, told: Told) -> str:
    if told.not_after <= _now():
        return "expired"
    if name not in (AUTHORITY, PUBLIC) and identity(settings.sidecar.trust_domain, name) not in told.uris:
        return "of another identity"
    folder = settings.certificates_path / name
    certificate, trusted = secret_folder.read(folder, CERTIFICATE), secret_folder.read(folder, TRUST)
    if trusted is None:
        return "good"
    # Another's CA is not here; its bundle is, and then that alone says whom we trust. While a CA is changed it holds both.
    authority = secret_folder.read(settings.certificates_path / AUTHORITY, CERTIFICATE) if name != PUBLIC else None
    try:
        is_good = all(is_trusted(each, trusted) for each in (certificate, authority) if each is not None)
    except CertificateError as error:
        raise CommandError(f"{folder / TRUST} {error}") from None
    return "good" if is_good else "of another CA"


def _table(rows: Sequence[dict[str, Any]]) -> Any:
    cells = ([row["name"], row["identity"], ", ".join(row["names"]), row["not_after"], row["state"]] for row in rows)
    return output.table(["name", "identity", "names", "expires", "state"], cells)


def _now() -> datetime:
    return datetime.now(UTC)
