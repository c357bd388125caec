"""Cached tokens are a part of the prompt's and cost their own price (U10): the sums of public reports, to the nano-dollar."""

import pytest

from services.common.money import parse_usd
from tests.fakes import scripts
from tests.fakes.scenario import Answered, Scenario
from tests.harness.reservations import reservations
from tests.harness.stage import CREDIT, Customer, Stage

MODEL = "acme/priced"
NAME = "priced"
FIRST, SECOND = ("1.40", "0.26", "4.40"), ("1.25", "0.625", "10")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("prices", "prompt", "cached", "completion", "cost"),
    [
        (FIRST, 27_147, 27_146, 351, "0.008603760"),
        # 5,005 x 1.25 + 257,955 x 0.625 + 1,744 x 10 millionths.
        (SECOND, 262_960, 257_955, 1_744, "0.184918125"),
        # A worker that reports more than all is clamped to all.
        (FIRST, 27_147, 27_148, 351, "0.008602620"),
        (FIRST, 27_147, 0, 351, "0.039550200"),
        (("0.20", "0.20", "0.60"), 12, 0, 5, "0.000005400"),
        # A fraction of a nano-dollar is rounded up, once: 1 x 0.0001 + 1 x 0.0001 millionths are 0.2 nano.
        (("0.0001", "0.0001", "0.0001"), 1, 0, 1, "0.000000001"),
        (("0", "0", "0"), 12, 4, 5, "0.000000000"),
    ],
)
async def test_the_sum(
    prices: tuple[str, str, str],
    prompt: int,
    cached: int,
    completion: int,
    cost: str,
    stream: bool,
    stage: Stage,
    customer: Customer,
) -> None:
    stage.product.price(MODEL, prices[0], prices[2], "--cached-prompt", prices[1])
    counts = scripts.usage(prompt, completion, cached)
    whole = [scripts.json_answer(scripts.chat_whole(NAME, "Hi", counts))]
    script = scripts.chat_stream(NAME, ["Hi"], counts) if stream else whole
    scenario = Scenario(NAME, ("U10",), script, Answered("Hi", prompt, completion, cached), stream=stream)
    stage.play(scenario, model=MODEL, worker_ids=("priced-1",))
    seen = await stage.ask(customer, scenario, model=MODEL)
    assert seen.status == 200
    assert f'"cost":{cost}' in seen.payloads[-2 if stream else 0]
    account = stage.product.settled(customer.account_id)
    assert parse_usd(CREDIT) - parse_usd(account["balance"]) == parse_usd(cost)
    assert [held.state for held in reservations(stage.product, customer.account_id)] == ["settled"]
    charges = [entry for entry in stage.product.entries(customer.account_id) if entry["kind"] == "charge"]
    assert [parse_usd(entry["amount"]) for entry in charges] == [-parse_usd(cost)]
