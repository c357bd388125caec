"""Slices in, pods out: what of a service's EndpointSlices is a worker."""

import json
from typing import Any

import pytest

from services.router.discovery.pods import InvalidSlice, Slice, lacks_port, pods, read_slice
from services.router.discovery.port import Found
from tests.fakes.kubernetes_api import endpoint, endpoint_slice


def read(*slices: dict[str, Any]) -> list[Slice]:
    return [read_slice(json.dumps(each).encode()) for each in slices]


def found(*slices: dict[str, Any], port: str | int = "http", known: frozenset[str] = frozenset()) -> dict[str, Found]:
    return pods(read(*slices), port, known)


def hosts(*slices: dict[str, Any], known: frozenset[str] = frozenset()) -> list[str]:
    return [each.host for each in found(*slices, known=known).values()]


def test_each_ready_pod_of_all_slices_is_one() -> None:
    slices = (
        endpoint_slice("s1", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b")),
        endpoint_slice("s2", endpoint("10.0.0.3", "c"), port=8001),
    )
    assert found(*slices) == {
        "uid-a": Found("10.0.0.1", 8000, "a"),
        "uid-b": Found("10.0.0.2", 8000, "b"),
        "uid-c": Found("10.0.0.3", 8001, "c"),
    }


@pytest.mark.parametrize("turned", [False, True])
def test_a_pod_in_several_slices_is_one_and_reached_by_ipv4(turned: bool) -> None:
    slices = [
        endpoint_slice("six", endpoint("fd00::1", "a"), endpoint("fd00::2", "b"), family="IPv6"),
        endpoint_slice("four", endpoint("10.0.0.1", "a")),
        endpoint_slice("moved", endpoint("10.0.0.1", "a")),
    ]
    assert found(*(reversed(slices) if turned else slices)) == {
        "uid-a": Found("10.0.0.1", 8000, "a"),
        "uid-b": Found("fd00::2", 8000, "b"),
    }


@pytest.mark.parametrize(
    ("conditions", "new", "was_there"),
    [
        ({"ready": True}, True, True),
        ({"ready": None, "serving": None, "terminating": None}, True, True),
        ({"ready": False}, False, True),
        ({"ready": False, "terminating": True}, False, False),
        # Of a service that publishes addresses that are not ready, they are always ready.
        ({"ready": True, "terminating": True}, False, False),
    ],
)
def test_what_its_conditions_make_of_a_pod(conditions: dict[str, bool | None], new: bool, was_there: bool) -> None:
    each = endpoint_slice("s", endpoint("10.0.0.1", "a", **conditions))
    assert bool(hosts(each)) is new
    assert bool(hosts(each, known=frozenset({"uid-a"}))) is was_there


@pytest.mark.parametrize("turned", [False, True])
def test_where_slices_differ_ready_and_terminating_are_believed(turned: bool) -> None:
    behind = endpoint_slice("s1", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b", ready=False))
    ahead = endpoint_slice("s2", endpoint("10.0.0.1", "a", ready=False, terminating=True), endpoint("10.0.0.2", "b"))
    assert hosts(*([ahead, behind] if turned else [behind, ahead])) == ["10.0.0.2"]


def test_of_two_pods_of_one_name_the_ready_one_has_it() -> None:
    old = endpoint("10.0.0.1", "vllm-0", uid="1-old", ready=False)
    new = endpoint("10.0.0.2", "vllm-0", uid="2-new")
    assert hosts(endpoint_slice("s", old, new), known=frozenset({"1-old"})) == ["10.0.0.2"]


def test_without_conditions_or_a_pod_an_endpoint_is_known_by_its_address() -> None:
    bare = {"addresses": ["10.0.0.1", "10.0.0.9"]}
    node = {**endpoint("10.0.0.2"), "targetRef": {"kind": "Node", "name": "n", "uid": "u"}}
    assert found(endpoint_slice("s", bare, node)) == {
        "10.0.0.1": Found("10.0.0.1", 8000),
        "10.0.0.2": Found("10.0.0.2", 8000),
    }


def test_the_port_is_that_of_the_name_or_the_number() -> None:
    each = endpoint_slice("s", endpoint("10.0.0.1", "a"))
    assert found(each, port="metrics")["uid-a"].port == 9
    assert found(each, port=1234)["uid-a"].port == 1234
    assert found(each, port="grpc") == {}
    assert lacks_port(read(each), "grpc")
    assert not lacks_port(read(each), "http")
    assert not lacks_port(read(endpoint_slice("s")), "grpc")
    each["ports"] = [
        {"name": "http", "port": 1, "protocol": "UDP"},
        {"name": "http", "port": None},
        {"name": "http", "port": 2},
    ]
    assert found(each)["uid-a"].port == 2


def test_what_is_no_address_of_its_family_is_left_out() -> None:
    assert hosts(endpoint_slice("s", endpoint("workers.test", "a"), family="FQDN")) == []
    assert hosts(endpoint_slice("s", endpoint("fd00::1", "a"), endpoint("nonsense", "b"))) == []
    assert hosts(endpoint_slice("s", {"addresses": []})) == []
    # The API server writes null for an empty list.
    assert hosts({**endpoint_slice("s"), "endpoints": None, "ports": None}) == []


@pytest.mark.parametrize(
    "document",
    [
        b"{", b"[]", b"null", b"{}", b'{"metadata": {}}', b'{"metadata": {"name": ""}}',
        b'{"metadata": {"name": "s"}, "endpoints": 7}',
        b'{"metadata": {"name": "s"}, "endpoints": [{}]}',
        b'{"metadata": {"name": "s"}, "ports": [{"port": "80"}]}',
        b'{"metadata": {"name": "\xff"}}',
        b"[" * 100_000,
        json.dumps(endpoint_slice("s", *[endpoint("10.0.0.1")] * 1001)).encode(),
    ],
)  # fmt: skip
def test_what_is_no_slice_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidSlice):
        read_slice(document)
