"""Where scenarios are played: the whole product with one scripted worker, which takes up a scenario at a time.

Each `play` registers the worker anew under the scenario's own configuration, so that nothing of an earlier failure (a circuit,
missing usage in a row) is left over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from services.common.money import parse_usd
from tests.fakes.canary_words import PROMPT
from tests.fakes.scenario import Answered, Scenario
from tests.fakes.scenarios import table
from tests.fakes.scripts import Received
from tests.fakes.worker import FakeWorker
from tests.harness import http_client
from tests.harness.charges import charge_nanos
from tests.harness.fake_worker import ThreadedWorker
from tests.harness.kept_product import KeptProduct
from tests.harness.reservations import reservations
from tests.harness.sse import Stream, stream

MODEL = "acme/model-1"
WORKER_ID = "scripted-1"
CREDIT = "10"
PROMPT_PRICE, CACHED_PRICE, COMPLETION_PRICE = "0.20", "0.05", "0.60"
ANSWER_S = 60.0
# Names that the worker lists besides the table's: for scenarios that are no entries of it.
OTHERS = ("headers", "once-more", "priced", "surrogates", "retried", "timed", "counted")


@dataclass(frozen=True)
class Customer:
    """An account with USD 10 and a key of it."""

    account_id: str
    key: str


class Stage:
    """`with Stage(folder) as stage:`; then `stage.play(scenario)` and requests for MODEL."""

    def __init__(self, folder: Path) -> None:
        settings = {
            # Here nearly every request fails: no scenario must spend the retries of the next.
            "SPEEDINFER_ROUTER__LIMITS__RETRY_BURST": "1000000",
        }
        self.product = KeptProduct(folder, settings)
        # The router's metrics.
        self.metrics_url = f"http://{self.product.address('router metrics')}"
        self._served = ThreadedWorker(FakeWorker([*table.ALL, *OTHERS]))

    def __enter__(self) -> "Stage":
        self._served.__enter__()
        try:
            self.product.__enter__()
            self.product.price(MODEL, PROMPT_PRICE, COMPLETION_PRICE, "--cached-prompt", CACHED_PRICE)
        except BaseException:
            self._served.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.product.__exit__(kind, error, trace)
        self._served.__exit__(kind, error, trace)

    def play(self, scenario: Scenario, *, model: str = MODEL, worker_ids: Sequence[str] = (WORKER_ID,)) -> None:
        """From now on `model` is the scenario's worker, or several workers that share the script."""
        self._served.plays({scenario.name: scenario.script})
        config = {"transport": "openai", "check": "metadata", "model_map": {model: scenario.name}, **scenario.config}
        for worker_id in worker_ids:
            worker = self.product.register({
                "worker_id": worker_id,
                "worker_type": "test",
                "runtime": "openai-compatible",
                "runtime_endpoint": self._served.worker.url,
                "supported_models": [model],
                "runtime_config": config,
            })  # fmt: skip
            assert worker["status"] == "healthy", worker

    def received(self) -> list[Received]:
        """What the worker got since `play`."""
        return self._served.received()

    def customer(self) -> Customer:
        """A new account and key."""
        account_id = self.product.account(CREDIT)
        return Customer(account_id, self.product.key(account_id))

    def body(self, scenario: Scenario, **more: Any) -> dict[str, Any]:
        """The request that the scenario is about."""
        prompts: dict[str, Any] = {
            "chat/completions": {"messages": [{"role": "user", "content": PROMPT}]},
            "completions": {"prompt": PROMPT},
            "embeddings": {"input": PROMPT},
        }
        stream = {"stream": True} if scenario.stream else {}
        return {"model": MODEL, **prompts[scenario.route], **stream, **scenario.request, **more}

    async def ask(self, customer: Customer, scenario: Scenario, **more: Any) -> Stream:
        """Ask for what the scenario is about, and read the answer to its end."""
        headers = {"authorization": f"Bearer {customer.key}"}
        async with http_client.plain(base_url=self.product.base_url, headers=headers, timeout=ANSWER_S) as http:
            return await stream(http, f"/{scenario.route}", self.body(scenario, **more))

    @staticmethod
    def charge(outcome: Answered) -> int:
        """What an answer costs at MODEL's prices, in nano-USD."""
        usage = {
            "prompt_tokens": outcome.prompt,
            "completion_tokens": outcome.completion,
            "prompt_tokens_details": {"cached_tokens": outcome.cached},
        }
        return charge_nanos(usage, PROMPT_PRICE, COMPLETION_PRICE, CACHED_PRICE)

    def assert_charged(self, customer: Customer, scenario: Scenario, times: int = 1) -> None:
        """The account has paid for exactly `times` such answers (nothing for failures), and nothing is held."""
        account = self.product.settled(customer.account_id)
        paid = parse_usd(CREDIT) - parse_usd(account["balance"])
        outcome = scenario.outcome
        if not isinstance(outcome, Answered):
            assert paid == 0, f"{scenario.name}: {paid} nano-USD were charged for a failure"
            states = {held.state for held in reservations(self.product, customer.account_id)}
            assert states <= {"released"}, states
            return
        assert paid == times * self.charge(outcome)
        assert [held.state for held in reservations(self.product, customer.account_id)] == ["settled"] * times
