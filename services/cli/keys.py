"""`speedinfer keys`: what clients present. A key's text is made here, shown once, and never leaves but as a hash."""

from typing import Annotated, Any

import typer
from speedinfer.billing.v1 import account_pb2, account_pb2_grpc, key_pb2, key_pb2_grpc

from services.cli import allowance, connection, output, shape, typed
from services.cli.invocation import Invocation, command, new_app
from services.common.apikey import make_key
from services.common.ids import uuid7

app = new_app("API keys: what clients present.")

KeyId = Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's public id, key_...")]


@command(app, "create")
def create(
    invocation: Invocation,
    account: Annotated[str, typer.Option(metavar="ID", help="Whose key.")],
    name: Annotated[str, typer.Option(help="A name for people.")] = "",
    rpm: allowance.Rpm = None,
    tpm: allowance.Tpm = None,
    concurrency: allowance.Concurrency = None,
    models: allowance.Models = None,
    expires: allowance.Expires = None,
    daily_spend: allowance.DailySpend = None,
    monthly_spend: allowance.MonthlySpend = None,
) -> None:
    """Make a key. This is the only time that it is shown."""
    limits = key_pb2.KeyLimits()
    allowance.fill(limits, rpm, tpm, concurrency, models, expires, daily_spend, monthly_spend)
    text, presented = make_key()
    item = key_pb2.CreateKeyItem(
        operation_id=uuid7(),
        account_id=account,
        name=name,
        limits=limits,
        key_id=presented.key_id,
        key_sha256=presented.sha256,
    )
    with connection.billing(invocation.settings()) as billing:
        stub = key_pb2_grpc.KeyServiceStub(billing.channel)
        answer = billing.call(stub.CreateKeys, key_pb2.CreateKeysRequest(items=[item]))
    _show_new(invocation, text, connection.only(answer.results))


@command(app, "list")
def list_keys(
    invocation: Invocation,
    account: Annotated[str, typer.Option(metavar="ID", help="Only this account's.")] = "",
) -> None:
    """List keys without their secrets, oldest first."""
    with connection.billing(invocation.settings()) as billing:
        if account:
            # An account without keys and one that does not exist have the same list; only the second is a mistake.
            accounts = account_pb2_grpc.AccountServiceStub(billing.channel)
            billing.call(accounts.GetAccount, account_pb2.GetAccountRequest(account_id=account))
        stub = key_pb2_grpc.KeyServiceStub(billing.channel)
        request = key_pb2.ListKeysRequest(account_id=account)
        found = [shape.key(key) for page in connection.pages(billing, stub.ListKeys, request) for key in page.keys]
    columns = ("key_id", "account_id", "name", "status", ">rpm", ">tpm", ">concurrency", "models", "expires_at")
    invocation.show(
        found, lambda: output.table(columns, ([row[name.removeprefix(">")] for name in columns] for row in found))
    )


@command(app, "revoke")
def revoke(invocation: Invocation, key_id: KeyId) -> None:
    """End a key: nothing new starts on it a second later, running streams finish."""
    item = key_pb2.RevokeKeyItem(operation_id=uuid7(), key_id=key_id)
    with connection.billing(invocation.settings()) as billing:
        stub = key_pb2_grpc.KeyServiceStub(billing.channel)
        answer = billing.call(stub.RevokeKeys, key_pb2.RevokeKeysRequest(items=[item]))
    value = shape.key(connection.only(answer.results).key)
    invocation.show(value, lambda: output.details(value))


@command(app, "rotate")
def rotate(
    invocation: Invocation,
    key_id: KeyId,
    grace: Annotated[
        int, typer.Option(parser=typed.duration_ms, metavar="TIME", help="How long the old key runs on: 15m, 24h.")
    ] = 24 * 3_600_000,
) -> None:
    """Make a successor with the same limits and let the old key run on for a while (24 h). The two share their limits."""
    text, presented = make_key()
    item = key_pb2.RotateKeyItem(
        operation_id=uuid7(),
        key_id=key_id,
        new_key_id=presented.key_id,
        new_key_sha256=presented.sha256,
        grace_ms=grace,
    )
    with connection.billing(invocation.settings()) as billing:
        stub = key_pb2_grpc.KeyServiceStub(billing.channel)
        answer = billing.call(stub.RotateKeys, key_pb2.RotateKeysRequest(items=[item]))
    _show_new(invocation, text, connection.only(answer.results))


def _show_new(invocation: Invocation, text: str, result: Any) -> None:
    value = {"key": text} | shape.key(result.key)
    invocation.show(value, lambda: output.details(value))
    if not invocation.as_json:
        output.print_note("Keep the key now: it is not stored and will not be shown again.")
