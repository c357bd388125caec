"""What the CA issues: identities, names, lifetimes, and nothing that could issue in turn."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from services.common.certificates import Authority, CertificateError, Pair, make_authority, tell

NOW = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
DAY = timedelta(days=1)
PAIR = make_authority("example.internal", NOW, 30 * DAY)
AUTHORITY = Authority(PAIR)


def test_an_identity_is_a_uri_with_names_beside_it() -> None:
    pair = AUTHORITY.issue("edge", ["edge", "Edge.Example", "127.0.0.1"], NOW, DAY)
    told = tell(pair.certificate)
    assert told.uris == ["spiffe://example.internal/speedinfer/edge"]
    assert told.names == ["edge", "edge.example", "127.0.0.1"]
    assert told.not_after == NOW + DAY
    assert told.not_before <= NOW
    assert not told.is_authority


def test_it_is_good_for_both_ends_and_the_public_one_for_servers_alone() -> None:
    both = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert usages(AUTHORITY.issue("edge", ["edge"], NOW, DAY)) == both
    public = AUTHORITY.issue_public(["api.example.com"], NOW, DAY)
    assert usages(public) == {ExtendedKeyUsageOID.SERVER_AUTH}
    assert tell(public.certificate).uris == []


def usages(pair: Pair) -> set[x509.ObjectIdentifier]:
    read = x509.load_pem_x509_certificate(pair.certificate)
    return set(read.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_it_is_of_its_ca_and_of_no_other() -> None:
    pair = AUTHORITY.issue("edge", ["edge"], NOW, DAY)
    assert (
        load_pem_private_key(pair.key, None).public_key()
        == x509.load_pem_x509_certificate(pair.certificate).public_key()
    )
    other = make_authority("example.internal", NOW, 30 * DAY)
    for authority, trusted in ((PAIR, True), (other, False)):
        store = Store([x509.load_pem_x509_certificate(authority.certificate)])
        verifier = PolicyBuilder().store(store).time(NOW).build_server_verifier(x509.DNSName("edge"))
        try:
            verifier.verify(x509.load_pem_x509_certificate(pair.certificate), [])
            verified = True
        except VerificationError:
            verified = False
        assert verified is trusted


def test_no_certificate_outlives_its_ca() -> None:
    assert tell(AUTHORITY.issue("edge", ["edge"], NOW, 90 * DAY).certificate).not_after == NOW + 30 * DAY
    with pytest.raises(CertificateError, match="the CA has expired"):
        AUTHORITY.issue("edge", ["edge"], NOW + 31 * DAY, DAY)


def test_keys_and_serials_are_new_each_time() -> None:
    first, second = (AUTHORITY.issue("edge", ["edge"], NOW, DAY) for _ in range(2))
    assert first.key != second.key
    assert tell(first.certificate).serial != tell(second.certificate).serial


def test_what_was_issued_issues_nothing() -> None:
    with pytest.raises(CertificateError, match="not one of a CA"):
        Authority(AUTHORITY.issue("edge", ["edge"], NOW, DAY))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Authority(Pair(b"nonsense", PAIR.key)), "is no certificate"),
        (lambda: Authority(Pair(PAIR.certificate, b"nonsense")), "no private key"),
        (lambda: Authority(Pair(PAIR.certificate, make_authority("a", NOW, DAY).key)), "not that of its certificate"),
        (lambda: make_authority("Example", NOW, DAY), "is no trust domain"),
        (lambda: make_authority("a/b", NOW, DAY), "is no trust domain"),
        (lambda: make_authority("", NOW, DAY), "is no trust domain"),
        (lambda: AUTHORITY.issue("edge", ["a b"], NOW, DAY), "'a b' is neither a DNS name nor an IP address"),
        (lambda: AUTHORITY.issue_public([], NOW, DAY), "needs a name"),
    ],
)
def test_what_cannot_be_is_said(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(CertificateError, match=said):
        make()
