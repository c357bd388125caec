"""The EndpointSlices of one service, read from the API server: a list, and a watch that goes on from it. The Kubernetes source
imports it. Everything that is read is bounded: a page, a list, an event, the time of each."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from services.router.discovery import cluster
from services.router.discovery.cluster import Cluster, ClusterError, Stale
from services.router.discovery.pods import InvalidSlice, Metadata, Slice, read_slice

PAGE = 100
MAX_SLICES = 1000
# The API server itself takes no object of more than 1.5 MiB.
MAX_EVENT_BYTES = 2 * 1024 * 1024
MAX_PAGE_BYTES = 32 * 1024 * 1024
LIST_WITHIN_S = 10.0
# The server ends a watch after this; that a connection is dead is noticed a little later.
WATCH_S = 60
WATCH_SLACK_S = 10.0

Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch: a slice that is so now, or is no more; or neither, and only the version is another."""

    version: str
    now: Slice | None = None
    gone: str = ""


class _List(msgspec.Struct):
    metadata: Metadata
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0


class _Versioned(msgspec.Struct):
    metadata: Metadata


class EndpointSlices:
    """Those of a service in a namespace."""

    def __init__(self, api: Cluster, namespace: str, service: str) -> None:
        self._api = api
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._selector = {"labelSelector": f"kubernetes.io/service-name={service}"}

    async def list(self) -> tuple[dict[str, Slice], str]:
        """All by name, and the version to watch from. ClusterError; Stale where a list took too long to be read in parts."""
        slices: dict[str, Slice] = {}
        more = ""
        # No longer than there are pages that may have something.
        for _ in range(MAX_SLICES // PAGE + 1):
            query = {**self._selector, "limit": str(PAGE), **({"continue": more} if more else {})}
            async with self._api.get(self._path, query, LIST_WITHIN_S) as chunks:
                body = await cluster.read_all(chunks, MAX_PAGE_BYTES)
            page = _decode(body, _List)
            for item in page.items or ():
                read = _slice(item)
                slices[read.metadata.name] = read
            if len(slices) > MAX_SLICES:
                break
            more = page.metadata.continue_
            if not more:
                if not page.metadata.resource_version:
                    raise ClusterError("the API server's list has no resourceVersion")
                return slices, page.metadata.resource_version
        raise ClusterError(f"the service has more than {MAX_SLICES} EndpointSlices")

    async def watch(self, version: str) -> AsyncGenerator[Change, None]:
        """What changes after `version`, until the server ends the watch in order. ClusterError if something else ends it, Stale
        if it does not remember `version`, or said what cannot be read."""
        query = {
            **self._selector,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        async with self._api.get(self._path, query, WATCH_S + WATCH_SLACK_S) as chunks:
            async for line in _lines(chunks):
                try:
                    change = _change(line)
                except ClusterError as error:
                    raise Stale(str(error)) from None
                yield change


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Those that are not empty; what stands behind the last line's end was cut."""
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        *whole, last = rest.split(b"\n") if b"\n" in chunk else [rest]
        rest = bytearray(last)
        if len(rest) > MAX_EVENT_BYTES:
            raise Stale(f"an event of the watch is over {MAX_EVENT_BYTES} bytes")
        for line in whole:
            if line.strip():
                yield bytes(line)


def _change(line: bytes) -> Change:
    event = _decode(line, _Event)
    if event.type == "ERROR":
        code = _decode(event.object, _Status).code
        raise Stale(f"the watch was ended with an error ({code})")
    if event.type == "BOOKMARK":
        return Change(_version(_decode(event.object, _Versioned).metadata))
    read = _slice(event.object)
    version = _version(read.metadata)
    if event.type == "DELETED":
        return Change(version, gone=read.metadata.name)
    if event.type in ("ADDED", "MODIFIED"):
        return Change(version, now=read)
    raise ClusterError("the watch has an event that is not known")


def _version(metadata: Metadata) -> str:
    if not metadata.resource_version:
        raise ClusterError("an event of the watch has no resourceVersion")
    return metadata.resource_version


def _slice(document: msgspec.Raw) -> Slice:
    try:
        return read_slice(document)
    except InvalidSlice as error:
        raise ClusterError(f"an EndpointSlice cannot be read: {error}") from None


def _decode(document: bytes | msgspec.Raw, shape: type[Shape]) -> Shape:
    try:
        return msgspec.json.decode(document, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ClusterError("the API server's answer cannot be read") from None
