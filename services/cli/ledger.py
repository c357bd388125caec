"""`speedinfer ledger`: an account's entries, and an export for finance. Audit, seals and copies have their own modules."""

import contextlib
import csv
import sys
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from speedinfer.billing.v1 import report_pb2, report_pb2_grpc

from services.cli import connection, output, shape, typed
from services.cli.failure import CommandError
from services.cli.invocation import Invocation, command, new_app

app = new_app("The ledger: entries, an export for finance, the audit, seals and copies.")

Since = Annotated[
    datetime | None, typer.Option("--from", parser=typed.instant, metavar="T", help="Booked from then on.")
]
Until = Annotated[datetime | None, typer.Option("--to", parser=typed.instant, metavar="T", help="Booked before.")]

COLUMNS = (
    *("entry_id", "transaction_id", "account_id", "at", "kind", "amount", "balance", "request_id", "key_id", "model"),
    *("price_version", "prompt_tokens", "cached_tokens", "completion_tokens", "worker_id", "attempts", "note"),
)


class Format(StrEnum):
    """File formats of the export."""

    CSV = "csv"
    JSONL = "jsonl"


@command(app, "list")
def list_entries(
    invocation: Invocation,
    account: Annotated[str, typer.Option(metavar="ID", help="Whose.")],
    since: Since = None,
    until: Until = None,
) -> None:
    """List an account's own legs, newest last; holds are no entries."""
    with connection.billing(invocation.settings()) as billing:
        found = list(_entries(billing, account, since, until))
    columns = ("at", "kind", ">amount", ">balance", "model", ">tokens", "request_id", "note")

    def rows() -> Iterator[list[Any]]:
        for row in found:
            tokens = row["usage"] or {}
            counts = f"{tokens.get('prompt_tokens') or 0}+{tokens.get('completion_tokens') or 0}" if tokens else ""
            yield [row[name.removeprefix(">")] if name != ">tokens" else counts for name in columns]

    invocation.show(found, lambda: output.table(columns, rows()))


@command(app, "export")
def export(
    invocation: Invocation,
    account: Annotated[str, typer.Option(metavar="ID", help="Whose; default: every account's.")] = "",
    file_format: Annotated[Format, typer.Option("--format", help="One line an entry.")] = Format.CSV,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; default: standard output.")
    ] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Write entries as CSV or JSON lines. With --json and no --output: one JSON list."""
    with connection.billing(invocation.settings()) as billing:
        accounts = [account] if account else _account_ids(billing)
        entries = (entry for one in accounts for entry in _entries(billing, one, since, until))
        if invocation.as_json and file is None:
            output.print_json(list(entries))
            return
        with _opened(file) as target:
            written = _write(target, file_format, entries)
    if file is not None:
        invocation.show({"file": str(file), "entries": written}, lambda: f"{written} entries written to {file}")


def _entries(
    billing: connection.Connection, account: str, since: datetime | None, until: datetime | None
) -> Iterator[dict[str, Any]]:
    stub = report_pb2_grpc.ReportServiceStub(billing.channel)
    request = report_pb2.ListEntriesRequest(account_id=account)
    if since is not None:
        getattr(request, "from").FromDatetime(since)
    if until is not None:
        request.to.FromDatetime(until)
    # A page's token stays good at the end, so that a reader can poll; a page that is not full is the last one.
    request.page_size = connection.PAGE_SIZE
    while True:
        page = billing.call(stub.ListEntries, request)
        yield from (shape.entry(entry) for entry in page.entries)
        if len(page.entries) < connection.PAGE_SIZE or not page.next_page_token:
            return
        request.page_token = page.next_page_token


def _account_ids(billing: connection.Connection) -> list[str]:
    stub = report_pb2_grpc.ReportServiceStub(billing.channel)
    found = connection.pages(billing, stub.ListAccountIds, report_pb2.ListAccountIdsRequest())
    return [account_id for page in found for account_id in page.account_ids]


def _opened(file: Path | None) -> contextlib.AbstractContextManager[TextIO]:
    if file is None:
        return contextlib.nullcontext(sys.stdout)
    try:
        return file.open("w", newline="")
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None


def _write(target: TextIO, file_format: Format, entries: Iterator[dict[str, Any]]) -> int:
    written = 0
    table = csv.DictWriter(target, COLUMNS, extrasaction="ignore", lineterminator="\n")
    if file_format is Format.CSV:
        table.writeheader()
    for written, entry in enumerate(entries, 1):  # noqa: B007 - counted for the caller
        if file_format is Format.CSV:
            table.writerow({name: _cell(value) for name, value in (entry | (entry["usage"] or {})).items()})
        else:
            target.write(output.json_text(entry) + "\n")
    return written


def _cell(value: Any) -> Any:
    # A spreadsheet takes text that begins with one of these for a formula; amounts are numbers and may be negative.
    if isinstance(value, str) and value[:1] in {"=", "+", "@", "-", "\t", "\r"} and not value[1:2].isdigit():
        return f"'{value}"
    return value
