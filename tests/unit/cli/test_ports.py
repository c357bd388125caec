"""Addresses: what is in the way is named by its setting, and what is proposed instead can be had."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli import ports
from services.common.settings import BillingSettings, EdgeSettings, RouterSettings, Settings

ALL = ("edge", "router", "billing")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def settings(edge: str, admin: str, router: str = "127.0.0.1:0", billing: str = "127.0.0.1:0") -> Settings:
    return Settings(
        edge=EdgeSettings(listen=edge, admin_listen=admin),
        router=RouterSettings(listen=router),
        billing=BillingSettings(listen=billing),
    )


def proposed(said: str) -> int:
    found = re.search(r"SPEEDINFER_EDGE__LISTEN=127\.0\.0\.1:(\d+)", said)
    assert found is not None, said
    return int(found[1])


def test_nothing_is_in_the_way_of_free_ports() -> None:
    assert ports.obstacles(settings("127.0.0.1:0", "127.0.0.1:0"), ALL) == []


def test_the_port_that_is_proposed_is_none_of_our_own(taken: int) -> None:
    ours = settings(f"127.0.0.1:{taken}", f"127.0.0.1:{taken + 1}", f"127.0.0.1:{taken + 2}")
    [said] = [said for said in ports.obstacles(ours, ALL) if "(edge.listen) is taken" in said]
    assert proposed(said) > taken + 2


def test_the_port_that_is_proposed_is_free(taken: int) -> None:
    [said] = ports.obstacles(settings(f"127.0.0.1:{taken}", "127.0.0.1:0"), ["edge"])
    with socket.create_server(("127.0.0.1", proposed(said))):
        [again] = ports.obstacles(settings(f"127.0.0.1:{taken}", "127.0.0.1:0"), ["edge"])
    assert proposed(again) > proposed(said)


@pytest.mark.parametrize("other", ["127.0.0.1", "localhost", "0.0.0.0", "[::]", ""])
def test_two_settings_with_one_address_are_refused_by_name(other: str) -> None:
    # Port 1 is never listened on: that they are the same is seen before anything is tried.
    [said] = ports.obstacles(settings("127.0.0.1:1", "127.0.0.1:0", f"{other}:1"), ALL)
    assert said.startswith("edge.listen and router.listen have the same address")
    assert "SPEEDINFER_ROUTER__LISTEN=" in said


def test_one_port_on_two_hosts_is_no_clash() -> None:
    said = ports.obstacles(settings("127.0.0.1:1", "127.0.0.1:0", "127.0.0.2:1"), ALL)
    assert not any("same address" in line for line in said)


def test_a_single_service_looks_at_its_own_ports_only(taken: int) -> None:
    ours = settings(f"127.0.0.1:{taken}", "127.0.0.1:0")
    assert ports.obstacles(ours, ["router"]) == []
    assert len(ports.obstacles(ours, ["edge"])) == 1


def test_a_host_that_is_not_this_machine_s_is_called_that() -> None:
    [said] = ports.obstacles(settings("192.0.2.1:8080", "127.0.0.1:0"), ["edge"])
    assert "192.0.2.1:8080 (edge.listen) cannot be listened on" in said


def test_a_unix_socket_is_taken_from_nobody_who_lives(tmp_path: Path) -> None:
    path = tmp_path / "router.sock"
    ours = settings("127.0.0.1:0", "127.0.0.1:0", f"unix:{path}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert ports.obstacles(ours, ["router"]) == [
            f"unix:{path} (router.listen) cannot be listened on: another process listens there"
        ]
        assert ports.obstacles(ours, ["billing"]) == []
    # What a dead one left is in nobody's way.
    assert path.exists()
    assert ports.obstacles(ours, ALL) == []


@pytest.mark.parametrize(("address", "why"), [("unix:run.sock", "must be absolute"), ("unix:/no/where/x", "no folder")])
def test_a_unix_socket_that_cannot_be_is_refused(address: str, why: str) -> None:
    [said] = ports.obstacles(settings("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", address), ["billing"])
    assert said.startswith(f"{address} (billing.listen) cannot be listened on:")
    assert why in said
