"""The whole product with a real Triton behind it: a worker is registered, a request sent, the charge looked at."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx

from demo.triton_worker import TritonServer
from services.common.money import parse_usd
from tests.harness import http_client
from tests.harness.charges import charge_nanos
from tests.harness.product import Product
from tests.harness.reservations import reservations
from tests.harness.sse import Stream, stream
from tests.harness.stage import COMPLETION_PRICE, CREDIT, PROMPT_PRICE, Customer
from tests.harness.until import until

MODEL = "acme/triton"
WORKER_ID = "triton-1"


class TritonScene:
    """`register`, then `ask` for MODEL. Each registration replaces the one before, and whatever its worker had run into."""

    def __init__(self, product: Product, server: TritonServer) -> None:
        self.product = product
        self.server = server
        product.price(MODEL, PROMPT_PRICE, COMPLETION_PRICE)

    def offer(self, triton_model: str, *, worker_id: str = WORKER_ID, **config: Any) -> dict[str, Any]:
        """Register a worker for MODEL; what operators see of it. `port` is another server's."""
        port = config.pop("port", self.server.http_port)
        return self.product.register({
            "worker_id": worker_id,
            "worker_type": "test",
            "runtime": "tensorrt-llm",
            "runtime_endpoint": f"http://127.0.0.1:{port}",
            "supported_models": [MODEL],
            "runtime_config": {"transport": "triton", "model_name": triton_model, **config},
        })  # fmt: skip

    def register(self, triton_model: str, **config: Any) -> None:
        """The same, and it must be a good one."""
        worker = self.offer(triton_model, **config)
        assert worker["status"] == "healthy", worker

    def remove(self, worker_id: str) -> None:
        """Take a worker out."""
        self.product.command("workers", "remove", worker_id)

    def client(self, customer: Customer) -> httpx.AsyncClient:
        """An HTTP client of the edge with the customer's key."""
        headers = {"authorization": f"Bearer {customer.key}"}
        return http_client.plain(base_url=self.product.base_url, headers=headers, timeout=60)

    async def ask(self, customer: Customer, prompt: str, *, whole: bool = False, **body: Any) -> Stream:
        """A completion, streamed unless `whole`."""
        asked = {"model": MODEL, "prompt": prompt, "max_tokens": 8, **({} if whole else {"stream": True}), **body}
        async with self.client(customer) as http:
            return await stream(http, "/completions", asked)

    def paid_nanos(self, customer: Customer) -> int:
        """What the account has paid, once nothing is held."""
        account = self.product.settled(customer.account_id)
        return parse_usd(CREDIT) - parse_usd(account["balance"])

    def assert_paid(self, customer: Customer, prompt: int, completion: int, times: int = 1) -> None:
        """Exactly `times` such answers, and a reservation each."""
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        assert self.paid_nanos(customer) == times * charge_nanos(usage, PROMPT_PRICE, COMPLETION_PRICE)
        assert [held.state for held in reservations(self.product, customer.account_id)] == ["settled"] * times

    def assert_paid_so_far(self, customer: Customer, prompt: int, completion: int, times: int = 1) -> None:
        """`times` such answers were charged, and nothing for what else there was."""
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        assert self.paid_nanos(customer) == times * charge_nanos(usage, PROMPT_PRICE, COMPLETION_PRICE)
        states = [held.state for held in reservations(self.product, customer.account_id)]
        assert sorted(states) == ["released"] * (len(states) - times) + ["settled"] * times

    def assert_unpaid(self, customer: Customer) -> None:
        """Nothing was charged, and whatever was held is released."""
        assert self.paid_nanos(customer) == 0
        assert {held.state for held in reservations(self.product, customer.account_id)} <= {"released"}


def text_of(seen: Stream) -> str:
    """The text of a completion, streamed or whole."""
    return "".join(choice["text"] for frame in seen.frames for choice in frame.get("choices") or ())


def reasons_of(seen: Stream) -> list[str]:
    """The reasons to finish that were given."""
    choices = [choice for frame in seen.frames for choice in frame.get("choices") or ()]
    return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


def counts_of(seen: Stream) -> tuple[int, int]:
    """Prompt and completion tokens of the one usage object."""
    usage = seen.usage
    assert usage is not None, seen.payloads
    return usage["prompt_tokens"], usage["completion_tokens"]


def kill_server(server: TritonServer) -> None:
    """kill -9 of the server process itself; what runs it then cleans up and ends."""
    assert server._process is not None
    starter = server._process.pid
    children = Path(f"/proc/{starter}/task/{starter}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    until(lambda: server._process is not None and server._process.poll() is not None, "the server is gone")


def error_of(seen: Stream) -> dict[str, Any]:
    """The error; all four keys are there."""
    error = seen.error
    assert error is not None, seen.payloads
    assert set(error) == {"message", "type", "param", "code"}
    return error


def told_inputs(seen: Stream) -> dict[str, Any]:
    """What a model that was asked to `tell=inputs` had been given."""
    assert seen.status == 200, seen.payloads
    told: dict[str, Any] = json.loads(text_of(seen))
    return told
