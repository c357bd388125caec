"""A version and the last release work together: each service is succeeded by one of the other version under load, in both
orders and back again, and nobody notices. Every pair of services meets both ways: an old edge with a new router and billing,
and a new edge with old ones."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blackbox.conftest import customer_of
from tests.blackbox.test_kill import BODY, everything_adds_up
from tests.harness.load import Load
from tests.harness.product import NAMES
from tests.harness.release import MixedProduct, unpacked
from tests.harness.upstream import Script, Upstream

CLIENTS = 6
QUICK = Script(pieces=tuple("abcdefghij"), prompt_tokens=12, completion_tokens=10, gap_s=0.005)
ORDERS = {
    "the edge last, then back": (("billing", "router", "edge"), ("edge", "router", "billing")),
    "the edge first": (("edge", "billing", "router"), ()),
}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last release's packages."""
    return unpacked(tmp_path_factory.mktemp("release"))


@pytest.fixture(params=ORDERS.values(), ids=ORDERS)
def orders(request: pytest.FixtureRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """In which order services are upgraded, and which of them go back in which order."""
    found: tuple[tuple[str, ...], tuple[str, ...]] = request.param
    return found


@pytest.fixture
def mixed(tmp_path: Path, served_by: Upstream, release: Path) -> Iterator[MixedProduct]:
    """Three services of the release."""
    with MixedProduct(tmp_path, served_by, release) as product:
        yield product


def test_the_release_is_another_program(release: Path) -> None:
    for name in NAMES:
        shown = subprocess.run(
            [
                sys.executable,
                "-c",
                f"from importlib.util import find_spec; print(find_spec('services.{name}.app').origin)",
            ],
            env={"PYTHONPATH": str(release)},
            cwd=release,
            check=True,
            capture_output=True,
            text=True,
        )
        assert Path(shown.stdout.strip()).is_relative_to(release)


async def test_versions_work_together_under_load(
    mixed: MixedProduct, upstream: Upstream, orders: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    forth, back = orders
    upstream.plays(QUICK)
    async with customer_of(mixed, mixed.account("10")) as customer:
        async with Load(customer.http, BODY, CLIENTS) as load:
            await load.acknowledged(10)
            assert [name for name in NAMES if mixed.is_release(name)] == list(NAMES)
            for name in forth:
                mixed.new.add(name)
                await asyncio.to_thread(mixed.succeed, name)
                assert not mixed.is_release(name)
                await load.acknowledged(20)
            for name in back:
                mixed.new.remove(name)
                await asyncio.to_thread(mixed.succeed, name)
                assert mixed.is_release(name)
                await load.acknowledged(20)
        assert load.tally.failed == 0, "\n".join(map(mixed.tail, NAMES))
        await asyncio.to_thread(everything_adds_up, customer, load, 0)
