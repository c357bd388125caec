"""Billing in this process or in one of its own, a clock that tests move, and a client with short names."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import timestamp_pb2
from speedinfer.billing.v1 import (
    access_pb2,
    access_pb2_grpc,
    account_pb2,
    account_pb2_grpc,
    key_pb2,
    key_pb2_grpc,
    price_pb2,
    price_pb2_grpc,
    report_pb2,
    report_pb2_grpc,
)
from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.billing.v1 import reservation_pb2_grpc as pb_grpc
from speedinfer.common.v1 import context_pb2, operation_pb2, usage_pb2

from services.billing.app import Billing
from services.common import rpc
from services.common.apikey import PresentedKey, make_key
from services.common.ids import uuid7
from services.common.money import from_money, parse_usd, to_money
from services.common.settings import Settings

TOKEN = "an-admin-token-for-tests"
MODEL = "acme/model-1"
ADMIN = (("authorization", f"Bearer {TOKEN}"),)


class MovedClock:
    """Stands still until it is moved; wall and monotonic time apart, as when an administrator steps the clock."""

    def __init__(self, wall_ms: int = 1_800_000_000_000) -> None:
        self.wall = wall_ms
        self.monotonic = 5_000_000

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def advance(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms


def settings(data_dir: Path, database: str, **limits: Any) -> Settings:
    # The sweep of the service itself stays out of the way; tests sweep when they want to.
    billing = {"listen": "127.0.0.1:0", "database": database, "limits": {"expiry_interval_s": 3600, **limits}}
    return Settings.model_validate({"data_dir": data_dir, "admin_token": TOKEN, "billing": billing})


class Client:
    """Calls with one item answer its result."""

    def __init__(self, port: int, clock: MovedClock | None = None) -> None:
        self.target = f"127.0.0.1:{port}"
        self.channel = rpc.channel(self.target)
        self.clock = clock
        self.reservations = pb_grpc.ReservationServiceStub(self.channel)
        self.access = access_pb2_grpc.AccessServiceStub(self.channel)
        self.accounts = account_pb2_grpc.AccountServiceStub(self.channel)
        self.keys = key_pb2_grpc.KeyServiceStub(self.channel)
        self.prices = price_pb2_grpc.PriceServiceStub(self.channel)
        self.reports = report_pb2_grpc.ReportServiceStub(self.channel)

    def new_id(self) -> str:
        return uuid7(self.clock.wall_ms() if self.clock else None)

    async def create_account(self, credit: str = "0", **fields: Any) -> Any:
        item = account_pb2.CreateAccountItem(
            **{"operation_id": self.new_id(), "name": "Acme", "credit": to_money(parse_usd(credit)), **fields}
        )
        response = await self.accounts.CreateAccounts(account_pb2.CreateAccountsRequest(items=[item]), metadata=ADMIN)
        return response.results[0]

    async def open_account(self, credit: str = "0") -> str:
        return str((await self.create_account(credit)).account.account_id)

    async def limit_account(self, account_id: str, **fields: Any) -> Any:
        """Set limits; `remove` and `operation_id` are fields of the item."""
        of_item = {name: fields.pop(name) for name in ("remove", "operation_id") if name in fields}
        item = account_pb2.AccountLimitsItem(
            **{"operation_id": self.new_id(), "account_id": account_id, **of_item},
            limits=account_pb2.AccountLimits(**fields),
        )
        request = account_pb2.SetAccountLimitsRequest(items=[item])
        return (await self.accounts.SetAccountLimits(request, metadata=ADMIN)).results[0]

    async def credit(self, account_id: str, amount: str, **fields: Any) -> Any:
        item = account_pb2.CreditItem(
            **{
                "operation_id": self.new_id(),
                "account_id": account_id,
                "amount": to_money(parse_usd(amount)),
                **fields,
            }
        )
        response = await self.accounts.PostCredits(account_pb2.PostCreditsRequest(items=[item]), metadata=ADMIN)
        return response.results[0]

    async def adjust(self, account_id: str, amount: str, **fields: Any) -> Any:
        item = account_pb2.AdjustmentItem(
            **{
                "operation_id": self.new_id(),
                "account_id": account_id,
                "amount": to_money(parse_usd(amount)),
                "reason": "a test",
                **fields,
            }
        )
        response = await self.accounts.PostAdjustments(account_pb2.PostAdjustmentsRequest(items=[item]), metadata=ADMIN)
        return response.results[0]

    async def account(self, account_id: str) -> Any:
        response = await self.accounts.GetAccount(account_pb2.GetAccountRequest(account_id=account_id), metadata=ADMIN)
        return response.account

    async def balance(self, account_id: str) -> tuple[int, int]:
        """Balance and held, in nano-USD."""
        account = await self.account(account_id)
        return from_money(account.balance), from_money(account.held)

    async def create_key(self, account_id: str, **limits: Any) -> Any:
        _, made = make_key()
        return await self.add_key(account_id, made, **limits)

    async def add_key(self, account_id: str, made: PresentedKey, **limits: Any) -> Any:
        """A key whose secret the test knows."""
        item = key_pb2.CreateKeyItem(
            operation_id=self.new_id(),
            account_id=account_id,
            key_id=made.key_id,
            key_sha256=made.sha256,
            limits=key_pb2.KeyLimits(**limits),
        )
        response = await self.keys.CreateKeys(key_pb2.CreateKeysRequest(items=[item]), metadata=ADMIN)
        return response.results[0]

    async def key(self, account_id: str, **limits: Any) -> str:
        return str((await self.create_key(account_id, **limits)).key.key_id)

    async def authorize(self, made: PresentedKey) -> Any:
        """What the edge is told of a presented key."""
        presented = access_pb2.PresentedKey(key_id=made.key_id, key_sha256=made.sha256)
        return (await self.access.AuthorizeKeys(access_pb2.AuthorizeKeysRequest(items=[presented]))).results[0]

    async def rotate(self, key_id: str, grace_ms: int, made: PresentedKey | None = None) -> Any:
        successor = made or make_key()[1]
        item = key_pb2.RotateKeyItem(
            operation_id=self.new_id(),
            key_id=key_id,
            new_key_id=successor.key_id,
            new_key_sha256=successor.sha256,
            grace_ms=grace_ms,
        )
        response = await self.keys.RotateKeys(key_pb2.RotateKeysRequest(items=[item]), metadata=ADMIN)
        return response.results[0]

    async def revoke(self, key_id: str) -> Any:
        item = key_pb2.RevokeKeyItem(operation_id=self.new_id(), key_id=key_id)
        response = await self.keys.RevokeKeys(key_pb2.RevokeKeysRequest(items=[item]), metadata=ADMIN)
        return response.results[0]

    async def set_price(self, prompt: str = "1", completion: str = "1", **fields: Any) -> Any:
        tier = price_pb2.PriceTier(prompt=to_money(parse_usd(prompt)), completion=to_money(parse_usd(completion)))
        item = price_pb2.SetPriceItem(
            **{"operation_id": self.new_id(), "model": MODEL, "tiers": [tier], "bounds": BOUNDS, **fields}
        )
        response = await self.prices.SetPrices(price_pb2.SetPricesRequest(items=[item]), metadata=ADMIN)
        return response.results[0]

    async def set_price_list(self, *items: price_pb2.SetPriceItem) -> list[Any]:
        """All or none of them."""
        request = price_pb2.SetPricesRequest(items=items, all_or_none=True)
        return list((await self.prices.SetPrices(request, metadata=ADMIN)).results)

    def reserve_item(self, key_id: str, **fields: Any) -> pb.ReserveItem:
        """A request whose hold at the test's price is exactly 1 USD: 500,000 bytes and 500,000 tokens of output."""
        return pb.ReserveItem(
            **{
                "reservation_id": self.new_id(),
                "key_id": key_id,
                "model": MODEL,
                "operation": operation_pb2.OPERATION_COMPLETION,
                "prompt": pb.PromptSize(text_bytes=500_000),
                "output_limit": 500_000,
                **fields,
            }
        )

    async def reserve(self, item: pb.ReserveItem) -> Any:
        return (await self.reservations.Reserve(pb.ReserveRequest(items=[item]))).results[0]

    async def hold(self, key_id: str, **fields: Any) -> str:
        """A reservation that is expected to be held."""
        result = await self.reserve(self.reserve_item(key_id, **fields))
        assert result.reservation.state == pb.RESERVATION_STATE_HELD, result
        return str(result.reservation_id)

    async def refusal(self, item: pb.ReserveItem) -> str:
        """The reason of a reservation that is expected to be refused."""
        result = await self.reserve(item)
        assert result.WhichOneof("outcome") == "refusal", result
        return pb.RefusalReason.Name(result.refusal.reason).removeprefix("REFUSAL_REASON_")

    def settle_item(
        self, reservation_id: str, prompt: int | None, completion: int | None, **fields: Any
    ) -> pb.SettleItem:
        cached = fields.pop("cached", None)
        return pb.SettleItem(
            **{
                "reservation_id": reservation_id,
                "usage": usage_pb2.Usage(
                    prompt_tokens=prompt, completion_tokens=completion, cached_prompt_tokens=cached
                ),
                "worker_id": "w-1",
                "attempts": 1,
                "ending": pb.ENDING_COMPLETED,
                **fields,
            }
        )

    async def settle(self, reservation_id: str, prompt: int | None, completion: int | None, **fields: Any) -> Any:
        item = self.settle_item(reservation_id, prompt, completion, **fields)
        return (await self.reservations.Settle(pb.SettleRequest(items=[item]))).results[0]

    async def release(self, reservation_id: str) -> str:
        item = pb.ReleaseItem(reservation_id=reservation_id, cause="upstream_error", worker_id="w9", attempts=2)
        result = (await self.reservations.Release(pb.ReleaseRequest(items=[item]))).results[0]
        return pb.ReleaseStatus.Name(result.status).removeprefix("RELEASE_STATUS_")

    async def renew(self, reservation_id: str) -> tuple[str, int]:
        request = pb.RenewRequest(items=[pb.RenewItem(reservation_id=reservation_id)])
        result = (await self.reservations.Renew(request)).results[0]
        return pb.RenewStatus.Name(result.status).removeprefix("RENEW_STATUS_"), result.lease_ms

    async def request(self, account_id: str, reservation_id: str) -> Any:
        question = access_pb2.GetRequestRequest(account_id=account_id, request_id=reservation_id)
        return (await self.access.GetRequest(question)).reservation

    async def entries(self, account_id: str, **fields: Any) -> Any:
        question = report_pb2.ListEntriesRequest(account_id=account_id, **fields)
        return await self.reports.ListEntries(question, metadata=ADMIN)

    async def verify(self) -> Any:
        return await self.reports.VerifyLedger(report_pb2.VerifyLedgerRequest(), metadata=ADMIN)


# No allowance for a template and a high limit, so that holds are round figures.
BOUNDS = price_pb2.ModelBounds(max_output_tokens=1_000_000, template_request_tokens=0, template_message_tokens=0)


class Service:
    """One billing service of a test, in this process; it can be started again on the same data."""

    def __init__(self, data_dir: Path, database: str, clock: MovedClock | None = None, **limits: Any) -> None:
        self.clock = clock or MovedClock()
        self._settings = settings(data_dir, database, **limits)

    async def start(self) -> Client:
        self.billing = Billing(self._settings, self.clock)
        self.client = Client(await self.billing.start(), self.clock)
        return self.client

    async def stop(self) -> None:
        await self.client.channel.close()
        await self.billing.drain()

    async def pass_time(self, seconds: int) -> int:
        """Move both clocks, sweeping as the service does; answers how many holds lapsed."""
        lapsed = 0
        for _ in range(seconds):
            self.clock.advance(1_000)
            lapsed += await self.billing.sweep()
        return lapsed


class Process:
    """One billing service as a process that can be killed."""

    def __init__(self, data_dir: Path, database: str, listen: str = "127.0.0.1:0") -> None:
        # On its standard input: a URL may hold a password, and arguments are for everybody to read.
        self._settings = settings(data_dir, database).model_dump(mode="json") | {"admin_token": TOKEN}
        self._settings["billing"] |= {"database": database, "listen": listen}

    async def start(self, *, take_over: bool = False) -> Client:
        """As a successor of whoever runs there, or as the first."""
        script = (
            "import json, sys; from services.billing.main import main; from services.common.settings import Settings; "
            f"sys.exit(main(Settings.model_validate(json.load(sys.stdin)), take_over={take_over}))"
        )
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.write(json.dumps(self._settings).encode())
        self.process.stdin.close()
        async for line in self.process.stderr:
            event = json.loads(line) if line.startswith(b"{") else {}
            if event.get("event") == "serving":
                return Client(event["port"])
        raise AssertionError("the process ended before it served")

    async def kill(self) -> None:
        self.process.kill()
        await self._gone()

    async def terminate(self) -> int:
        self.process.terminate()
        await self._gone()
        return int(self.process.returncode or 0)

    async def _gone(self) -> None:
        assert self.process.stderr is not None
        while await self.process.stderr.read(65_536):
            pass
        await self.process.wait()


def stamp(ms: int) -> timestamp_pb2.Timestamp:
    return timestamp_pb2.Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def of_request(reservation_id: str, **fields: Any) -> context_pb2.RequestContext:
    return context_pb2.RequestContext(request_id=reservation_id, **fields)


def status_of(error: grpc.aio.AioRpcError) -> str:
    return str(error.code().name)
