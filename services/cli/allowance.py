"""The options that say what a key or an account may do. Imported by the command's modules only."""

from datetime import datetime
from typing import Annotated

import typer
from speedinfer.billing.v1 import account_pb2, key_pb2

from services.cli import typed
from services.common.money import to_money

Rpm = Annotated[int | None, typer.Option(min=1, help="Requests per minute.")]
Tpm = Annotated[int | None, typer.Option(min=1, help="Tokens per minute.")]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Requests at once.")]
Models = Annotated[str | None, typer.Option(metavar="A,B", help="The models it may use; default: all.")]
Expires = Annotated[
    datetime | None, typer.Option(parser=typed.later, metavar="T", help="When it ends: a time, or 30d.")
]
DailySpend = Annotated[int | None, typer.Option(parser=typed.credit, metavar="USD", help="Spend per UTC day.")]
MonthlySpend = Annotated[int | None, typer.Option(parser=typed.credit, metavar="USD", help="Spend per UTC month.")]
CreditLimit = Annotated[
    int | None,
    typer.Option(parser=typed.credit, metavar="USD", help="How far below zero the balance may go; 0: prepaid."),
]
# What `--remove` takes, and the field that each is.
REMOVABLE = {
    "rpm": "requests_per_minute",
    "tpm": "tokens_per_minute",
    "concurrency": "concurrency",
    "models": "models",
    "expires": "expires_at",
    "daily-spend": "daily_spend",
    "monthly-spend": "monthly_spend",
    "credit-limit": "credit_limit",
}


def fill(
    limits: key_pb2.KeyLimits | account_pb2.AccountLimits,
    rpm: int | None,
    tpm: int | None,
    concurrency: int | None,
    models: str | None,
    expires: datetime | None,
    daily_spend: int | None,
    monthly_spend: int | None,
) -> None:
    """Set in a message what was typed."""
    if rpm is not None:
        limits.requests_per_minute = rpm
    if tpm is not None:
        limits.tokens_per_minute = tpm
    if concurrency is not None:
        limits.concurrency = concurrency
    limits.models.extend(typed.names(models))
    if expires is not None:
        limits.expires_at.FromDatetime(expires)
    if daily_spend is not None:
        limits.daily_spend.CopyFrom(to_money(daily_spend))
    if monthly_spend is not None:
        limits.monthly_spend.CopyFrom(to_money(monthly_spend))


def removed(text: str | None) -> list[str]:
    """The fields that `--remove` names. Wrong usage where one is unknown."""
    names = typed.names(text)
    for name in names:
        if name not in REMOVABLE:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(REMOVABLE)}", param_hint="--remove")
    return [REMOVABLE[name] for name in names]
