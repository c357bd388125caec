"""Addresses that a worker may have, and those that are refused however they are written."""

import pytest

from services.router import endpoint
from services.router.transport.guarded_resolver import GuardedResolver


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/v1",
        "https://worker.example/v1",
        "http://trt:8000",
        "http://[::1]:8000/a/b",
        "http://10.0.0.1",
    ],
)
def test_allowed(url: str) -> None:
    assert endpoint.check(url).geturl() == url


@pytest.mark.parametrize(
    "url",
    [
        "", "127.0.0.1:8000", "ftp://h/", "file:///etc/passwd", "http://", "http:///v1", "http://h:0/", "http://h:99999/",
        "http://u:p@h/", "http://u@h/", "http://h/?a=1", "http://h/?", "http://h/#f", "http://h/a b", "http://h\r\n/", "http://hé/",
        "http://169.254.169.254/", "http://169.254.1.1:8000/", "http://0.0.0.0:8000/", "http://224.0.0.1/", "http://[::]/",
        "http://[fe80::1]/", "http://[ff02::1]/", "http://[::ffff:169.254.169.254]/", "http://2852039166/", "http://0xa9fea9fe/",
        "http://0251.0376.0251.0376/", "http://169.254.43518/", "http://0/", "http://metadata.google.internal/",
        "http://metadata.google.internal./", "http://100.100.100.200/", "http://[fd00:ec2::254]/", "http://[64:ff9b::a9fe:a9fe]/",
        "http://255.255.255.255/", "http://[fe80::1%25eth0]/", "http://[::1/",
        "http://[fd00:ec2::23]/", "http://[fd00:42::42]/", "http://169.254.170.23/", "http://169.254.42.42/",
    ],
)  # fmt: skip
def test_refused(url: str) -> None:
    with pytest.raises(endpoint.EndpointError):
        endpoint.check(url)


async def test_names_resolve_to_allowed_addresses_only() -> None:
    resolver = GuardedResolver()
    assert {result["host"] for result in await resolver.resolve("localhost", 80)} <= {"127.0.0.1", "::1"}
    # The system's resolver takes an old form of writing for a name.
    with pytest.raises(OSError, match="no worker may be at 2852039166: it is a metadata service"):
        await resolver.resolve("2852039166", 80)
    await resolver.close()
