"""A Kubernetes API server, as a pod's service account reaches it: GET, over TLS, with a token. The reader of slices imports it.

Each request is a connection of its own, for which the CA and the token are read anew, because both rotate. The token goes to
that server alone (no redirects, no proxies), and it is in no text that leaves this module.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_FILE_BYTES = 1024 * 1024
CONNECT_WITHIN_S = 5.0
READ_BYTES = 64 * 1024


class ClusterError(Exception):
    """The API server was not reached, or does not do what it was asked; the text says why, in our words."""


class Stale(ClusterError):
    """What is known of it cannot be gone on from: list anew."""


class Cluster:
    """Where the API server is, and who we are there."""

    def __init__(self, url: str, folder: Path) -> None:
        """`url` is `https://host:port`; `folder` has the service account's `token` and `ca.crt`."""
        self._url = url
        self._folder = folder

    @asynccontextmanager
    async def get(self, path: str, query: Mapping[str, str], within_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of an answer with status 200, as it comes. Stale for 410; ClusterError for every other status, for what
        hinders the connection, and once `within_s` is over, all of it included."""
        token = self._token()
        limits = aiohttp.ClientTimeout(total=within_s, connect=CONNECT_WITHIN_S)
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            connector = aiohttp.TCPConnector(ssl=self._trust(), limit=1, force_close=True)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=limits, trust_env=False) as session,
                session.get(self._url + path, params=query, headers=headers, allow_redirects=False) as answer,
            ):
                _check(answer.status)
                yield answer.content.iter_chunked(READ_BYTES)
        except TimeoutError:
            raise ClusterError("the API server did not answer in time") from None
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise ClusterError(f"the API server is not reached ({type(error).__name__})") from None

    def _token(self) -> str:
        token = self._read("token").decode(errors="replace").strip()
        if not token or not (token.isascii() and token.isprintable()):
            raise ClusterError(f"{self._folder / 'token'} holds no token")
        return token

    def _trust(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cadata=self._read("ca.crt").decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise ClusterError(f"{self._folder / 'ca.crt'} holds no certificate (PEM)") from None
        # From 3.13 on Python is strict about extensions that CAs of many clusters do not have; whom to trust is the same.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _read(self, name: str) -> bytes:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                return file.read(MAX_FILE_BYTES)
        except OSError as error:
            raise ClusterError(f"{path} cannot be read: {error.strerror}") from None


def in_cluster_url(environment: Mapping[str, str] | None = None) -> str:
    """Where Kubernetes tells its pods that the API server is; empty outside of a cluster."""
    names = os.environ if environment is None else environment
    host, port = names.get("KUBERNETES_SERVICE_HOST", ""), names.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


async def read_all(chunks: AsyncIterator[bytes], max_bytes: int) -> bytes:
    """A body up to its end. ClusterError if it is longer than `max_bytes`."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > max_bytes:
            raise ClusterError(f"the API server's answer is over {max_bytes} bytes")
        # A body that is there already would be read without a break.
        await asyncio.sleep(0)
    return bytes(body)


def _check(status: int) -> None:
    if status == 200:
        return
    if status == 410:
        raise Stale("the API server does not remember so far back (410)")
    if status == 401:
        raise ClusterError("the API server does not know the service account's token (401)")
    if status == 403:
        raise ClusterError(
            "the service account may not read endpointslices there (403): it needs get, list and watch on "
            "endpointslices of discovery.k8s.io (docs/guides/discovery.md)"
        )
    raise ClusterError(f"the API server answered with status {status}")
