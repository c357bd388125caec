"""One product with both real workers for the tests that need them, and one with the scripted worker for the scenarios.

Each starts once, when the first test asks for it.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from demo.triton_worker import TritonServer
from tests.harness.product import Product
from tests.harness.real_workers import (
    SHARED_MODEL,
    LlamaServer,
    missing_llama,
    missing_triton,
    triton_registration,
    triton_server,
)
from tests.harness.stage import Stage
from tests.sdk.openai_node import NodeSdk
from tests.sdk.purse import Purse
from tests.sdk.readers import Readers
from tests.sdk.readers import readers as make_readers

# A worker that comes or goes is waited for by looking, and not for as long as between two looks in earnest.
OFTEN = {"SPEEDINFER_ROUTER__LIMITS__PROBE_INTERVAL_S": "1", "SPEEDINFER_ROUTER__LIMITS__PROBE_INTERVAL_DOWN_S": "0.2"}
# The model of each transport, in USD per million tokens: 0.20 and 0.60.
MODELS = {"openai": "real/llama", "triton": "real/triton"}


@dataclass(frozen=True)
class Real:
    """The product, and the models that it can serve here."""

    product: Product
    triton: TritonServer | None

    def model(self, transport: str) -> str:
        """The model of a transport. Skips the test, by name, where the transport's real part cannot exist."""
        if transport == "triton" and self.triton is None:
            pytest.skip(f"Triton: {missing_triton()}")
        return MODELS[transport]

    def customer(self) -> tuple[str, str]:
        """A new account with USD 10, and its key."""
        account_id = self.product.account("10")
        return account_id, self.product.key(account_id)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """Both real workers behind the real product."""
    if reason := missing_llama():
        pytest.skip(f"llama.cpp: {reason}")
    folder = tmp_path_factory.mktemp("real")
    triton = None if missing_triton() else triton_server(folder / "triton")
    if triton is not None:
        triton.start()
    try:
        with LlamaServer(folder) as llama, Product(folder / "product", OFTEN) as product:
            for model in (SHARED_MODEL, *MODELS.values()):
                product.price(model, "0.20", "0.60", "--template-request-tokens", "64")
            worker = product.register(llama.registration("llama", MODELS["openai"]))
            assert worker["status"] == "healthy", worker["detail"]
            if triton is not None:
                triton.wait_ready()
                worker = product.register(triton_registration(triton, "triton", MODELS["triton"]))
                assert worker["status"] == "healthy", worker["detail"]
            yield Real(product, triton)
    finally:
        if triton is not None:
            triton.stop()


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The whole product and the scripted worker."""
    with Stage(tmp_path_factory.mktemp("sdk-stage")) as stage:
        yield stage


@pytest.fixture(scope="session")
def purse(stage: Stage) -> Iterator[Purse]:
    """Who pays on that stage."""
    with Purse(stage) as purse:
        yield purse


@pytest.fixture(scope="session")
def node_sdk(stage: Stage) -> Iterator[NodeSdk]:
    """The SDK for Node, pointed at that stage."""
    with NodeSdk(stage.product.base_url) as sdk:
        yield sdk


@pytest.fixture(scope="session")
async def readers(stage: Stage, node_sdk: NodeSdk) -> AsyncIterator[Readers]:
    """All clients that read scenarios."""
    async with make_readers(stage, node_sdk) as made:
        yield made


@pytest.fixture(params=["openai", "triton"])
def transport(request: pytest.FixtureRequest) -> str:
    """Each test runs on both."""
    name: str = request.param
    return name
