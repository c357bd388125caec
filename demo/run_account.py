"""The demo's account, prices and key: made once, kept in `demo.json` (mode 0600) in the data folder, shown again later."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from speedinfer.billing.v1 import account_pb2, account_pb2_grpc, key_pb2, key_pb2_grpc, price_pb2, price_pb2_grpc

from services.cli import connection
from services.cli.failure import CommandError
from services.common.apikey import make_key
from services.common.ids import uuid7
from services.common.money import NANOS_PER_USD, from_money, to_money
from services.common.settings import Settings

FILE_NAME = "demo.json"
CREDIT_NANOS = 10 * NANOS_PER_USD
# USD 0.20, 0.05 and 0.60 per million tokens.
PROMPT_NANOS, CACHED_NANOS, COMPLETION_NANOS = 200_000_000, 50_000_000, 600_000_000


@dataclass(frozen=True)
class DemoAccount:
    account_id: str
    key: str


def open_account(settings: Settings, models: list[str]) -> DemoAccount:
    """The account and its key, with credit, and a price for each model. CommandError if billing does not do it."""
    file = settings.data_dir / FILE_NAME
    with connection.billing(settings) as billing:
        kept = _read(file)
        if kept is None or not _top_up(billing, kept.account_id):
            kept = _create(billing)
            _write(file, kept)
        for model in models:
            _price(billing, model)
    return kept


def _top_up(billing: connection.Connection, account_id: str) -> bool:
    """Whether the account exists; it has a dollar at least afterwards."""
    stub = account_pb2_grpc.AccountServiceStub(billing.channel)
    try:
        account = billing.call(stub.GetAccount, account_pb2.GetAccountRequest(account_id=account_id)).account
    except CommandError:
        return False
    if from_money(account.available) < NANOS_PER_USD:
        item = account_pb2.CreditItem(
            operation_id=uuid7(), account_id=account_id, amount=to_money(CREDIT_NANOS), note="demo"
        )
        connection.only(billing.call(stub.PostCredits, account_pb2.PostCreditsRequest(items=[item])).results)
    return True


def _create(billing: connection.Connection) -> DemoAccount:
    accounts = account_pb2_grpc.AccountServiceStub(billing.channel)
    account_item = account_pb2.CreateAccountItem(operation_id=uuid7(), name="demo", credit=to_money(CREDIT_NANOS))
    answer = billing.call(accounts.CreateAccounts, account_pb2.CreateAccountsRequest(items=[account_item]))
    account_id = connection.only(answer.results).account.account_id
    text, presented = make_key()
    key_item = key_pb2.CreateKeyItem(
        operation_id=uuid7(),
        account_id=account_id,
        name="demo",
        key_id=presented.key_id,
        key_sha256=presented.sha256,
    )
    keys = key_pb2_grpc.KeyServiceStub(billing.channel)
    connection.only(billing.call(keys.CreateKeys, key_pb2.CreateKeysRequest(items=[key_item])).results)
    return DemoAccount(account_id, text)


def _price(billing: connection.Connection, model: str) -> None:
    stub = price_pb2_grpc.PriceServiceStub(billing.channel)
    if billing.call(stub.ListPrices, price_pb2.ListPricesRequest(model=model)).prices:
        return
    tier = price_pb2.PriceTier(
        prompt=to_money(PROMPT_NANOS), cached_prompt=to_money(CACHED_NANOS), completion=to_money(COMPLETION_NANOS)
    )
    # The model's template puts a system prompt of its own in front of a chat that has none.
    bounds = price_pb2.ModelBounds(max_output_tokens=2048, default_output_tokens=256, template_request_tokens=64)
    item = price_pb2.SetPriceItem(operation_id=uuid7(), model=model, tiers=[tier], bounds=bounds)
    connection.only(billing.call(stub.SetPrices, price_pb2.SetPricesRequest(items=[item])).results)


def _read(file: Path) -> DemoAccount | None:
    try:
        return DemoAccount(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _write(file: Path, account: DemoAccount) -> None:
    draft = file.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        json.dump(asdict(account), opened)
    draft.rename(file)
