"""One product and one scripted worker for all black-box tests that break nothing; each test has an account of its own."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.harness import deployed
from tests.harness.deployed import Deployed
from tests.harness.product import Product
from tests.harness.upstream import MODEL, Script, Upstream


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Deployed | None:
    """The deployment that is to be tested, if one is given."""
    return Deployed(tmp_path_factory.mktemp("deployed")) if deployed.is_given() else None


@pytest.fixture(scope="session")
def served_by(elsewhere: Deployed | None) -> Iterator[Upstream]:
    upstream = Upstream()
    if elsewhere:
        upstream.listens_on = elsewhere.here
    with upstream:
        yield upstream


@pytest.fixture
def upstream(served_by: Upstream) -> Upstream:
    """The scripted worker, playing its usual script."""
    served_by.plays(Script())
    return served_by


@pytest.fixture(scope="session")
def product(
    tmp_path_factory: pytest.TempPathFactory, served_by: Upstream, elsewhere: Deployed | None
) -> Iterator[Product]:
    """A whole product whose one worker is the scripted one, at USD 0.20 and 0.60 per million tokens."""
    if elsewhere:
        prepare(elsewhere, served_by)
        yield elsewhere
        return
    with ready_product(tmp_path_factory.mktemp("product"), served_by) as product:
        yield product


def ready_product(folder: Path, upstream: Upstream, settings: dict[str, str] | None = None) -> Product:
    """A product that is about to start."""
    return PreparedProduct(folder, upstream, settings)


def prepare(product: Product, upstream: Upstream) -> None:
    """Give it the worker and a price."""
    assert product.register(upstream.registration())["status"] == "healthy"
    product.price(MODEL)


class PreparedProduct(Product):
    """Has the scripted worker and a price from its start on."""

    def __init__(self, folder: Path, upstream: Upstream, settings: dict[str, str] | None) -> None:
        super().__init__(folder, settings)
        self._upstream = upstream

    def __enter__(self) -> "PreparedProduct":
        super().__enter__()
        try:
            prepare(self, self._upstream)
        except BaseException:
            self.close()
            raise
        return self


@dataclass
class Customer:
    """An account, its key, and a client that presents it."""

    product: Product
    account_id: str
    key: str
    http: httpx.AsyncClient


@pytest.fixture
async def customer(product: Product) -> AsyncIterator[Customer]:
    """A customer with USD 10."""
    account_id = product.account("10")
    async with customer_of(product, account_id) as found:
        yield found


class customer_of:
    """`async with customer_of(product, account_id)` gives a Customer with a new key."""

    def __init__(self, product: Product, account_id: str, *options: str) -> None:
        self._customer = Customer(
            product,
            account_id,
            key := product.key(account_id, *options),
            product.client(
                headers={"authorization": f"Bearer {key}"},
                timeout=60,
                limits=httpx.Limits(max_connections=200),
            ),
        )

    async def __aenter__(self) -> Customer:
        return self._customer

    async def __aexit__(self, *_: object) -> None:
        await self._customer.http.aclose()
