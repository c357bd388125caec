"""`speedinfer accounts`: who pays, and the money that was put in."""

from typing import Annotated, Any

import typer
from speedinfer.billing.v1 import account_pb2, account_pb2_grpc

from services.cli import allowance, connection, output, shape, typed
from services.cli.invocation import Invocation, command, new_app
from services.common.ids import uuid7
from services.common.money import to_money

app = new_app("Who pays: accounts and the money that was put in.")

AccountId = Annotated[str, typer.Argument(metavar="ID", help="The account's id.")]


@command(app, "create")
def create(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(help="A name for people; need not be unique.")],
    credit: Annotated[int, typer.Option(parser=typed.credit, metavar="USD", help="Credit to start with.")] = 0,
    rpm: allowance.Rpm = None,
    tpm: allowance.Tpm = None,
    concurrency: allowance.Concurrency = None,
    models: allowance.Models = None,
    expires: allowance.Expires = None,
    daily_spend: allowance.DailySpend = None,
    monthly_spend: allowance.MonthlySpend = None,
    credit_limit: allowance.CreditLimit = None,
) -> None:
    """Open an account. Its limits are for all of its keys together."""
    item = account_pb2.CreateAccountItem(operation_id=uuid7(), name=name)
    limits = account_pb2.AccountLimits()
    allowance.fill(limits, rpm, tpm, concurrency, models, expires, daily_spend, monthly_spend)
    if credit_limit is not None:
        limits.credit_limit.CopyFrom(to_money(credit_limit))
    if limits.ListFields():
        item.limits.CopyFrom(limits)
    if credit:
        item.credit.CopyFrom(to_money(credit))
    with connection.billing(invocation.settings()) as billing:
        stub = account_pb2_grpc.AccountServiceStub(billing.channel)
        answer = billing.call(stub.CreateAccounts, account_pb2.CreateAccountsRequest(items=[item]))
    _show_result(invocation, connection.only(answer.results))


# An amount such as -5 is no option: it is told what is wrong with it, or taken.
SIGNED = {"ignore_unknown_options": True}


@command(app, "credit", context_settings=SIGNED)
def credit(
    invocation: Invocation,
    account_id: AccountId,
    amount: Annotated[int, typer.Argument(parser=typed.positive_amount, metavar="USD", help="How much to add.")],
    note: Annotated[str, typer.Option(help="A note for the ledger, such as an invoice number.")] = "",
) -> None:
    """Put prepaid money in."""
    item = account_pb2.CreditItem(operation_id=uuid7(), account_id=account_id, amount=to_money(amount), note=note)
    with connection.billing(invocation.settings()) as billing:
        stub = account_pb2_grpc.AccountServiceStub(billing.channel)
        answer = billing.call(stub.PostCredits, account_pb2.PostCreditsRequest(items=[item]))
    _show_result(invocation, connection.only(answer.results))


@command(app, "adjust", context_settings=SIGNED)
def adjust(
    invocation: Invocation,
    account_id: AccountId,
    amount: Annotated[int, typer.Argument(parser=typed.amount, metavar="USD", help="How much, signed: -1.50 takes.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the ledger.")],
    request: Annotated[str, typer.Option(metavar="ID", help="The request that it corrects.")] = "",
) -> None:
    """Correct a balance up or down, with a reason."""
    if not amount:
        raise typer.BadParameter("the amount may not be zero", param_hint="USD")
    if not reason.strip():
        raise typer.BadParameter("a reason is needed", param_hint="--reason")
    item = account_pb2.AdjustmentItem(
        operation_id=uuid7(), account_id=account_id, amount=to_money(amount), reason=reason, request_id=request
    )
    with connection.billing(invocation.settings()) as billing:
        stub = account_pb2_grpc.AccountServiceStub(billing.channel)
        answer = billing.call(stub.PostAdjustments, account_pb2.PostAdjustmentsRequest(items=[item]))
    _show_result(invocation, connection.only(answer.results))


@command(app, "limit")
def limit(
    invocation: Invocation,
    account_id: AccountId,
    rpm: allowance.Rpm = None,
    tpm: allowance.Tpm = None,
    concurrency: allowance.Concurrency = None,
    models: allowance.Models = None,
    expires: allowance.Expires = None,
    daily_spend: allowance.DailySpend = None,
    monthly_spend: allowance.MonthlySpend = None,
    credit_limit: allowance.CreditLimit = None,
    remove: Annotated[
        str | None, typer.Option(metavar="A,B", help=f"Limits to take away: {', '.join(allowance.REMOVABLE)}.")
    ] = None,
) -> None:
    """Change what an account may do, from the next request on. Limits that are not named stay as they are."""
    item = account_pb2.AccountLimitsItem(operation_id=uuid7(), account_id=account_id, remove=allowance.removed(remove))
    allowance.fill(item.limits, rpm, tpm, concurrency, models, expires, daily_spend, monthly_spend)
    if credit_limit is not None:
        item.limits.credit_limit.CopyFrom(to_money(credit_limit))
    if not item.limits.ListFields() and not item.remove:
        raise typer.BadParameter("name a limit to set, or one to --remove")
    with connection.billing(invocation.settings()) as billing:
        stub = account_pb2_grpc.AccountServiceStub(billing.channel)
        answer = billing.call(stub.SetAccountLimits, account_pb2.SetAccountLimitsRequest(items=[item]))
    value = shape.account(connection.only(answer.results).account)
    invocation.show(value, lambda: output.details(value))


@command(app, "show")
def show(invocation: Invocation, account_id: AccountId) -> None:
    """Show an account's balance, what is held of it, and what is available."""
    with connection.billing(invocation.settings()) as billing:
        stub = account_pb2_grpc.AccountServiceStub(billing.channel)
        answer = billing.call(stub.GetAccount, account_pb2.GetAccountRequest(account_id=account_id))
    value = shape.account(answer.account)
    invocation.show(value, lambda: output.details(value))


@command(app, "list")
def list_accounts(invocation: Invocation) -> None:
    """List accounts, oldest first."""
    with connection.billing(invocation.settings()) as billing:
        stub = account_pb2_grpc.AccountServiceStub(billing.channel)
        request = account_pb2.ListAccountsRequest()
        found = [
            shape.account(account)
            for page in connection.pages(billing, stub.ListAccounts, request)
            for account in page.accounts
        ]
    columns = ("account_id", "name", ">balance", ">held", ">available", "created_at")
    invocation.show(
        found, lambda: output.table(columns, ([row[name.removeprefix(">")] for name in columns] for row in found))
    )


def _show_result(invocation: Invocation, result: Any) -> None:
    value = shape.account(result.account) | {"entry_id": result.entry_id or None}
    invocation.show(value, lambda: output.details(value))
