"""Certificates of our services' identities: a development CA, what it issues, and what a certificate says. Pure but for the
randomness of keys; the time is an argument. The command imports it.

An identity is the URI `spiffe://TRUST_DOMAIN/speedinfer/NAME`; sidecars decide by it (docs/decisions/0015). DNS names are
beside it for clients that look at those. The edge's public certificate has names alone: clients know no identities of ours.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

IDENTITIES = ("edge", "router", "billing", "finance", "operator")
# Clocks differ; a certificate of just now must not be one of the future elsewhere.
SKEW = timedelta(minutes=5)
_TRUST_DOMAIN = re.compile(r"(?=.{1,255}\Z)[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
_DNS_NAME = re.compile(r"(?=.{1,253}\Z)(\*\.)?[a-z0-9]([a-z0-9-]{0,62})(\.[a-z0-9][a-z0-9-]{0,62})*")


class CertificateError(ValueError):
    """What was given is no certificate, key or name that can be used; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Told:
    """What a certificate says of itself."""

    uris: Sequence[str]
    names: Sequence[str]
    not_before: datetime
    not_after: datetime
    serial: str
    is_authority: bool


def is_trust_domain(text: str) -> bool:
    """Whether SPIFFE would take it as the name of a trust domain."""
    return _TRUST_DOMAIN.fullmatch(text) is not None


def identity(trust_domain: str, name: str) -> str:
    """The URI of an identity."""
    return f"spiffe://{trust_domain}/speedinfer/{name}"


def make_authority(trust_domain: str, now: datetime, lifetime: timedelta) -> Pair:
    """A CA that signs itself, and can issue certificates but no further CA."""
    if not is_trust_domain(trust_domain):
        raise CertificateError(
            f"{trust_domain!r} is no trust domain: letters, digits, dots, such as speedinfer.internal"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SpeedInfer development CA")])
    # A CA's own URI is its trust domain's, without a path (X.509-SVID, 4.1).
    uri = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://{trust_domain}")])
    certificate = (
        _builder(name, name, key, now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(uri, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    return _pair(certificate, key)


class Authority:
    """A CA with its key."""

    def __init__(self, pair: Pair) -> None:
        """CertificateError if it is none."""
        self.certificate = pair.certificate
        self._certificate = _load(pair.certificate)
        self._key = _load_key(pair.key)
        if self._certificate.public_key() != self._key.public_key():
            raise CertificateError("the CA's key is not that of its certificate")
        if not tell(pair.certificate).is_authority:
            raise CertificateError("the CA's certificate is not one of a CA")
        found = [uri for uri in tell(pair.certificate).uris if uri.startswith("spiffe://")]
        self.trust_domain = found[0].removeprefix("spiffe://") if found else ""

    def issue(self, name: str, names: Sequence[str], now: datetime, lifetime: timedelta) -> Pair:
        """A certificate of an identity, with DNS names and addresses beside it, for both ends of mutual TLS."""
        uri = x509.UniformResourceIdentifier(identity(self.trust_domain, name))
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(f"speedinfer {name}", [uri, *map(_general_name, names)], usages, now, lifetime)

    def issue_public(self, names: Sequence[str], now: datetime, lifetime: timedelta) -> Pair:
        """A server's certificate without an identity, for clients."""
        if not names:
            raise CertificateError("a public certificate needs a name at least")
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        return self._issue("speedinfer", list(map(_general_name, names)), usages, now, lifetime)

    def _issue(
        self,
        common_name: str,
        names: Sequence[x509.GeneralName],
        usages: Sequence[x509.ObjectIdentifier],
        now: datetime,
        lifetime: timedelta,
    ) -> Pair:
        until = now + lifetime
        if until > self._certificate.not_valid_after_utc:
            # Whoever trusts the CA no longer would not trust it, whatever it says of itself.
            until = self._certificate.not_valid_after_utc
        if until <= now:
            raise CertificateError(f"the CA has expired ({until:%Y-%m-%d %H:%M} UTC)")
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(subject, self._certificate.subject, key, now, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, SHA256())
        )
        return _pair(certificate, key)


def tell(certificate: bytes) -> Told:
    """What the first certificate of a PEM says. CertificateError if there is none."""
    read = _load(certificate)
    try:
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    try:
        is_authority = read.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    addresses = [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    return Told(
        uris=names.get_values_for_type(x509.UniformResourceIdentifier),
        names=[*names.get_values_for_type(x509.DNSName), *addresses],
        not_before=read.not_valid_before_utc,
        not_after=read.not_valid_after_utc,
        serial=f"{read.serial_number:x}",
        is_authority=is_authority,
    )


def is_trusted(certificate: bytes, authorities: bytes) -> bool:
    """Whether one of the authorities of a PEM has signed a certificate, or one of those that follow it. CertificateError."""
    trusted = _load_all(authorities)
    return any(_has_signed(one, each) for each in _load_all(certificate) for one in trusted)


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        pass
    if not _DNS_NAME.fullmatch(text.lower()):
        raise CertificateError(f"{text!r} is neither a DNS name nor an IP address")
    return x509.DNSName(text.lower())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before((now - SKEW).astimezone(UTC))
        .not_valid_after(until.astimezone(UTC))
    )


def _usage(**said: bool) -> x509.KeyUsage:
    usages = dict.fromkeys(
        (
            *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
        ),
        False,
    )
    return x509.KeyUsage(**(usages | said))


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(Encoding.PEM), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )


def _load(certificate: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise CertificateError("is no certificate in PEM form") from None


def _load_all(certificates: bytes) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(certificates)
    except ValueError:
        raise CertificateError("is no certificate in PEM form") from None


def _load_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        read = load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise CertificateError("the key is no private key in PEM form without a password") from None
    if not isinstance(read, ec.EllipticCurvePrivateKey):
        raise CertificateError("the key is not one of an elliptic curve")
    return read
