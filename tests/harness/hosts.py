"""Hosts with addresses of their own on one switch: network namespaces, made and removed by whoever uses them.

Nothing leaves them: the switch has no way to the machine's own network. Needs root and Linux; `possible` says whether it goes.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType

NETWORK = "10.77.0"
_CLONE_NEWNET = 0x40000000
# A hardware address that nobody has.
_NOBODY = "02:00:00:00:de:ad"


@cache
def possible() -> bool:
    """Whether this machine lets us make network namespaces."""
    name = f"speedinfer-{os.getpid()}-try"
    if os.geteuid() != 0 or subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return False
    try:
        tried = subprocess.run(
            ["ip", "-n", name, "link", "add", "br0", "type", "bridge"], capture_output=True, check=False
        )
        return tried.returncode == 0
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class Host:
    """One of them."""

    def __init__(self, name: str, namespace: str, number: int, switch: str) -> None:
        self.name = name
        self.namespace = namespace
        self.address = f"{NETWORK}.{number}"
        self._switch = switch
        self._port = f"port{number}"
        _ip("netns", "add", namespace)
        _ip("link", "add", self._port, "netns", switch, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("-n", switch, "link", "set", self._port, "master", "br0", "up")
        _ip("-n", namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", namespace, "link", "set", link, "up")

    def command(self, *arguments: str) -> list[str]:
        """What runs a program on this host; it has the process id of what runs it."""
        return ["ip", "netns", "exec", self.namespace, *arguments]

    def isolate(self) -> None:
        """Pull its plug: what it sends and what is sent to it is lost without a word."""
        _ip("-n", self._switch, "link", "set", self._port, "nomaster")

    def join(self) -> None:
        """Put the plug back."""
        _ip("-n", self._switch, "link", "set", self._port, "master", "br0")

    def part_from(self, other: "Host") -> None:
        """Lose what goes between two hosts, either way, without a word."""
        for here, there in ((self, other), (other, self)):
            where = ("-n", here.namespace, "neigh", "replace", there.address)
            _ip(*where, "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")

    def meet(self, other: "Host") -> None:
        """The end of `part_from`."""
        for here, there in ((self, other), (other, self)):
            _ip("-n", here.namespace, "neigh", "del", there.address, "dev", "eth0")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Sockets that this thread opens meanwhile are this host's."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        theirs = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY)
        try:
            _enter(theirs)
            try:
                yield
            finally:
                _enter(own)
        finally:
            os.close(own)
            os.close(theirs)


class Hosts:
    """`with Hosts("edge", "router") as hosts:` gives `hosts["edge"]` and so on, all of them reachable to each other."""

    def __init__(self, *names: str) -> None:
        self._names = names
        # Namespaces are the machine's: another run beside ours has others.
        self._prefix = f"speedinfer-{os.getpid()}-"
        self._hosts: dict[str, Host] = {}

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __enter__(self) -> "Hosts":
        switch = f"{self._prefix}switch"
        try:
            _ip("netns", "add", switch)
            _ip("-n", switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", switch, "link", "set", "br0", "up")
            for number, name in enumerate(self._names, start=2):
                self._hosts[name] = Host(name, f"{self._prefix}{name}", number, switch)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for found in Path("/run/netns").glob(f"{self._prefix}*"):
            _ip("netns", "del", found.name)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def _enter(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
