"""`speedinfer usage`: what an account used, by model; the same answer as the account's own `GET /v1/usage`."""

from datetime import datetime
from typing import Annotated

import typer
from speedinfer.billing.v1 import report_pb2, report_pb2_grpc

from services.cli import connection, output, shape, typed
from services.cli.invocation import Invocation

Instant = Annotated[datetime | None, typer.Option(parser=typed.instant, metavar="T")]


def usage(
    invocation: Invocation,
    account: Annotated[str, typer.Option(metavar="ID", help="Whose.")],
    since: Annotated[
        datetime | None,
        typer.Option("--from", parser=typed.instant, metavar="T", help="From when; default: the start of this month."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--to", parser=typed.instant, metavar="T", help="Until when; default: now.")
    ] = None,
) -> None:
    """Show what an account used, by model, and its balance."""
    # `from` is a keyword of Python, so the field is set through its descriptor's name.
    request = report_pb2.GetUsageRequest(account_id=account)
    if since is not None:
        getattr(request, "from").FromDatetime(since)
    if until is not None:
        request.to.FromDatetime(until)
    with connection.billing(invocation.settings()) as billing:
        stub = report_pb2_grpc.ReportServiceStub(billing.channel)
        value = shape.usage(billing.call(stub.GetUsage, request))
    columns = ("model", ">requests", ">prompt_tokens", ">cached_tokens", ">completion_tokens", ">cost")
    invocation.show(
        value,
        lambda: output.table(
            columns,
            (
                *([row[name.removeprefix(">")] for name in columns] for row in value["models"]),
                ["balance", "", "", "", "", value["balance"]],
                ["held", "", "", "", "", value["held"]],
                ["available", "", "", "", "", value["available"]],
            ),
        ),
    )
