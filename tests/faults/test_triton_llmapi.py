"""NVIDIA's LLM-API model behind the product: bare it is refused by name, with the overlay of deploy/triton/ it is billed."""

import pytest

from tests.fakes.llm_api.tensorrt_llm.llmapi import answer_text
from tests.harness.stage import Customer, Stage
from tests.integration.test_triton_overlay import Overlay, overlay
from tests.integration.triton_scene import TritonScene, counts_of, error_of, reasons_of, text_of

pytest_plugins = ["tests.integration.triton_server"]
pytestmark = pytest.mark.real

__all__ = ["overlay"]  # the fixture


@pytest.fixture(scope="module")
def scene(stage: Stage, overlay: Overlay) -> TritonScene:
    return TritonScene(stage.product, overlay.server)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_the_overlays_counts_are_what_is_charged(scene: TritonScene, customer: Customer, protocol: str) -> None:
    scene.register("tensorrt_llm", protocol=protocol)
    for whole in (False, True):
        seen = await scene.ask(customer, "one two three", whole=whole, max_tokens=11)
        assert (text_of(seen), reasons_of(seen)) == (answer_text(11), ["length"])
        # The engine's own ids: the words of the prompt and a BOS.
        assert counts_of(seen) == (4, 11)
    scene.assert_paid(customer, 4, 11, times=2)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_an_end_before_the_limit_and_a_stop(scene: TritonScene, customer: Customer, protocol: str) -> None:
    scene.register("tensorrt_llm", protocol=protocol)
    word = answer_text(11)[9:12]
    for whole in (False, True):
        seen = await scene.ask(customer, "say tokens=11", whole=whole, max_tokens=20)
        assert (text_of(seen), reasons_of(seen), counts_of(seen)) == (answer_text(11), ["stop"], (3, 11))
        stopped = await scene.ask(customer, "say tokens=11", whole=whole, max_tokens=20, stop=word)
        assert (text_of(stopped), reasons_of(stopped)) == (answer_text(11).split(word)[0], ["stop"])
        prompt, completion = counts_of(stopped)
        assert (prompt, 0 < completion <= 11) == (3, True)


async def test_a_seed_that_the_overlay_cannot_take_is_refused_by_name(scene: TritonScene, customer: Customer) -> None:
    scene.register("tensorrt_llm", check="metadata")
    seen = await scene.ask(customer, "one", seed=-1)
    assert (seen.status, error_of(seen)["param"]) == (400, "seed")
    scene.assert_unpaid(customer)
