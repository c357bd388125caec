"""gRPC to addresses that were judged: the core is given addresses and never a name. Imported by the Triton transport only.

gRPC resolves names by itself, again and again, and would connect to whatever comes out. So the name is resolved here, behind
the guard, whenever the channel is not connected; what it answered is what the channel may connect to. The name stays what the
server is asked for (`:authority`, and under TLS the name that its certificate must have). No proxy from the environment.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from services.router.networks import EVERYWHERE, Networks
from services.router.transport.guarded_resolver import RESOLVED_FOR_S, GuardedResolver, NotAllowed


class _Pinned:
    """A channel, what it is pinned to, and how many calls it has."""

    def __init__(self, channel: grpc.aio.Channel, addresses: tuple[str, ...]) -> None:
        self.channel = channel
        self.addresses = addresses
        self.calls = 0
        self.replaced = False


class PinnedChannel:
    """The channel to one server; another one takes its place where the name has moved."""

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None,
        options: Sequence[tuple[str, Any]],
        networks: Networks = EVERYWHERE,
    ) -> None:
        """`target` is `host:port`."""
        host, _, port = target.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._credentials = credentials
        self._networks = networks
        self._options = [*options, ("grpc.default_authority", target), ("grpc.enable_http_proxy", 0)]
        self._current: _Pinned | None = None
        self._replaced: set[_Pinned] = set()
        self._resolved_s = 0.0
        self._resolving = asyncio.Lock()
        self._closed = False

    @asynccontextmanager
    async def for_call(self, timeout_s: float) -> AsyncIterator[grpc.aio.Channel]:
        """The channel, for one call. NotAllowed or another OSError if there is no address for it, TimeoutError if that takes
        longer than `timeout_s`."""
        async with asyncio.timeout(timeout_s), self._resolving:
            pinned = await self._pin()
        pinned.calls += 1
        try:
            yield pinned.channel
        finally:
            pinned.calls -= 1
            if pinned.replaced and not pinned.calls:
                self._replaced.discard(pinned)
                await pinned.channel.close()

    async def close(self) -> None:
        """Close every channel, whoever uses it."""
        self._closed = True
        for pinned in (self._current, *self._replaced):
            if pinned is not None:
                await pinned.channel.close()

    async def _pin(self) -> _Pinned:
        current = self._current
        now_s = asyncio.get_running_loop().time()
        if current is not None and (
            current.channel.get_state() is grpc.ChannelConnectivity.READY or now_s < self._resolved_s + RESOLVED_FOR_S
        ):
            return current
        addresses = await self._resolve()
        if self._closed:
            raise OSError(None, "the channel is closed")
        self._resolved_s = now_s
        if current is not None and addresses == current.addresses:
            return current
        self._current = _Pinned(self._open(addresses), addresses)
        if current is not None:
            current.replaced = True
            if current.calls:
                self._replaced.add(current)
            else:
                await current.channel.close()
        return self._current

    async def _resolve(self) -> tuple[str, ...]:
        if _is_address(self._host):
            if refusal := self._networks.refusal(self._host):
                raise NotAllowed(None, f"no worker may be there: it is {refusal}")
            return (self._host,)
        found = await GuardedResolver(self._networks).resolve(self._host, self._port)
        # Resolvers take turns about the order; it is no reason for another channel.
        return tuple(sorted({result["host"] for result in found}))

    def _open(self, addresses: Sequence[str]) -> grpc.aio.Channel:
        target = target_of(addresses, self._port)
        if self._credentials is None:
            return grpc.aio.insecure_channel(target, options=self._options)
        return grpc.aio.secure_channel(target, self._credentials, options=self._options)


def target_of(addresses: Sequence[str], port: int) -> str:
    """The addresses as gRPC takes them; those of both families together, as IPv6 ones."""
    if all(":" not in address for address in addresses):
        return "ipv4:" + ",".join(f"{address}:{port}" for address in addresses)
    return "ipv6:" + ",".join(f"[{address if ':' in address else f'::ffff:{address}'}]:{port}" for address in addresses)


def _is_address(host: str) -> bool:
    return EVERYWHERE.refusal(host) != "no IP address"
