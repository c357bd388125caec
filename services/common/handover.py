"""How a successor takes a running service's place: who speaks to whom, and what passes from hand to hand.

The service that runs offers its place at a Unix socket in the data folder, which only its own user can open. The successor
says `take`, gets what it can be given (listening sockets; nothing of the kind where the service is a gRPC server), makes
itself ready, and says `ready`; the old one leaves and says `leaving`. Until `ready` nothing is decided: a successor that dies
before it leaves the old one as it was. At most one takes at a time. Composition roots import it; docs/decisions/0009 says why.
"""

import asyncio
import json
import os
import signal
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from services.common.errors import ConfigurationError
from services.common.listen import split, unix_path

_log = structlog.get_logger(__name__)
# A successor that has not said what it wants, or an old one that does not answer, is not waited for.
_WORD_WITHIN_S = 10.0
# How long a successor may take to be ready.
_READY_WITHIN_S = 60.0
_LOOK_S = 1.0
# Who asks or looks while one takes over.
_WAITING = 16
# One that ends takes its offer back within milliseconds.
_LOOKS, _LOOK_EVERY_S = 20, 0.1
_MAX_WORDS_BYTES = 4096
_MAX_SOCKETS = 32
# What tells one of several processes that another crew is there.
LEAVE = signal.SIGUSR1
_TAKE, _READY, _LEAVING = b"take\n", b"ready\n", b"leaving\n"

Listeners = Mapping[str, Sequence[int]]


def place(data_dir: Path, service: str, address: str) -> Path:
    """Where a service with this address offers its place. Several edges of one data folder differ in their ports."""
    own = unix_path(address)
    where = own.name if own is not None else split(address, f"{service}.listen")[1]
    return data_dir / f"{service}-{where}.handover"


def is_offered(path: Path) -> bool:
    """Whether somebody is there who can be succeeded."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_LOOK_S)
        try:
            return _connect(connection, path)
        except TimeoutError:
            # It is there, and busy with others who ask.
            return True
        except OSError:
            return False


@dataclass(slots=True)
class Predecessor:
    """The service whose place is being taken, as its successor sees it."""

    pid: int
    # Setting and address -> the sockets that listen there.
    listeners: dict[str, list[socket.socket]]
    connection: socket.socket
    # Where it offers its place.
    path: Path
    dismissed: bool = False

    async def dismiss(self) -> None:
        """Say that we are ready; returns when the old one is leaving, or has gone by itself (told to stop just after we were
        started, say). ConfigurationError if it stays. A second time does nothing."""
        if self.dismissed:
            return
        self.dismissed = True
        try:
            await asyncio.to_thread(self._dismiss)
        except OSError as error:
            if isinstance(error, TimeoutError) or not await self._is_gone():
                raise ConfigurationError(f"process {self.pid} did not hand its place over: {error}") from error
            _log.warning("predecessor_gone", predecessor=self.pid)
            return
        _log.info("took_over", predecessor=self.pid)

    async def _is_gone(self) -> bool:
        """Whether it offers its place no more, as one that has done with us, or ends, soon does; one that serves on does."""
        for _ in range(_LOOKS):
            if not await asyncio.to_thread(is_offered, self.path):
                return True
            await asyncio.sleep(_LOOK_EVERY_S)
        return False

    def _dismiss(self) -> None:
        with self.connection:
            self.connection.sendall(_READY)
            if self.connection.recv(len(_LEAVING)) != _LEAVING:
                raise ConnectionError("it is gone")

    def close(self) -> None:
        """Let it go on as it was, unless it was dismissed; what was given and not used is closed."""
        self.connection.close()
        for sockets in self.listeners.values():
            for each in sockets:
                each.close()
        self.listeners.clear()


async def ask(path: Path) -> Predecessor | None:
    """Ask for the place of whoever offers it; None if nobody does."""
    return await asyncio.to_thread(_ask, path)


def _ask(path: Path) -> Predecessor | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_WORD_WITHIN_S)
    try:
        if not _connect(connection, path):
            connection.close()
            return None
        connection.sendall(_TAKE)
        words, descriptors, _, _ = socket.recv_fds(connection, _MAX_WORDS_BYTES, _MAX_SOCKETS)
        for each in descriptors:
            os.set_inheritable(each, False)
        sockets = iter([socket.socket(fileno=each) for each in descriptors])
        said = json.loads(words)
        listeners = {name: [next(sockets) for _ in range(count)] for name, count in said["listeners"].items()}
        return Predecessor(said["pid"], listeners, connection, path)
    except (OSError, ValueError, KeyError, StopIteration) as error:
        connection.close()
        raise ConfigurationError(f"{path}: the running service did not answer its successor ({error})") from error


class Service(Protocol):
    """A service that can be succeeded."""

    async def start(self, predecessor: Predecessor | None = None) -> object:
        """Begin to serve, with what the predecessor gave."""

    def listeners(self) -> Listeners:
        """Descriptors of the listening sockets that a successor may have, by setting and address."""

    async def prepare(self) -> None:
        """A successor is getting ready: change nothing that it reads."""

    async def resume(self) -> None:
        """It did not come to be; go on."""

    async def leave(self) -> None:
        """It is there: take nothing new. Returns when the successor may have all that two cannot have at once."""

    async def linger(self, stop: asyncio.Event) -> None:
        """Finish what runs, each to its own deadline, or until `stop`."""


async def serve(service: Service, path: Path, stop: asyncio.Event, *, take_over: bool) -> None:
    """The life of a service up to its drain: it succeeds whoever is there if it is to, serves, and is succeeded or stopped."""
    predecessor = await ask(path) if take_over else None
    try:
        await service.start(predecessor)
        if stop.is_set():
            # Told to stop before it was ready: the old one goes on.
            return
        if predecessor is not None:
            await predecessor.dismiss()
    finally:
        if predecessor is not None:
            predecessor.close()
    leaving, taken = asyncio.Event(), asyncio.Event()
    offering = asyncio.get_running_loop().create_task(_offer(service, path, leaving, taken), name="offer-place")
    try:
        await either(stop, taken)
    finally:
        # What the successor was promised is kept, whatever we are told meanwhile.
        if not leaving.is_set():
            offering.cancel()
        await asyncio.wait([offering])
    if taken.is_set():
        _log.info("succeeded")
        await service.linger(stop)


async def either(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _offer(service: Service, path: Path, leaving: asyncio.Event, taken: asyncio.Event) -> None:
    """Offer the place until somebody has it."""
    loop = asyncio.get_running_loop()
    try:
        listening = _listen(path)
    except OSError as error:
        # It serves all the same; it cannot be succeeded.
        _log.warning("place_not_offered", path=str(path), error=error.strerror)
        return
    with listening:
        try:
            while not taken.is_set():
                connection, _ = await loop.sock_accept(listening)
                with connection:
                    try:
                        await _hand_over(service, connection, leaving, taken)
                    except (OSError, TimeoutError) as error:
                        _log.warning("successor_lost", error=type(error).__name__)
        finally:
            # Once it is taken, the name is the successor's.
            if not taken.is_set():
                with suppress(OSError):
                    os.unlink(path)


async def _hand_over(service: Service, connection: socket.socket, leaving: asyncio.Event, taken: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    async with asyncio.timeout(_WORD_WITHIN_S):
        if await loop.sock_recv(connection, len(_TAKE)) != _TAKE:
            return
    _log.info("successor_asks")
    await service.prepare()
    try:
        listeners = service.listeners()
        words = {"pid": os.getpid(), "listeners": {name: len(each) for name, each in listeners.items()}}
        socket.send_fds(
            connection, [json.dumps(words).encode()], [each for some in listeners.values() for each in some]
        )
        async with asyncio.timeout(_READY_WITHIN_S):
            ready = await loop.sock_recv(connection, len(_READY)) == _READY
    except BaseException:
        await service.resume()
        raise
    if not ready:
        _log.warning("successor_lost", error="it ended before it was ready")
        await service.resume()
        return
    leaving.set()
    await service.leave()
    with suppress(OSError):
        await loop.sock_sendall(connection, _LEAVING)
    taken.set()


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        # Under a name of its own first: whoever finds the place finds somebody there, and a dead one's is replaced.
        draft = path.with_name(f".{uuid.uuid4().hex[:8]}")
        with _address(draft) as address:
            listening.bind(address)
        listening.listen(_WAITING)
        draft.chmod(0o600)
        draft.replace(path)
    except BaseException:
        listening.close()
        raise
    return listening


def _connect(connection: socket.socket, path: Path) -> bool:
    try:
        with _address(path) as address:
            connection.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """A name for the socket that fits: Unix sockets take 107 bytes, and data folders may lie deep."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
