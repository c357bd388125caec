"""Follows the demo account's ledger and makes a receipt of each charge."""

from __future__ import annotations

from collections.abc import Iterator

from speedinfer.billing.v1 import report_pb2, report_pb2_grpc

from services.cli import connection
from services.common.money import format_usd, from_money

CHARGES = (report_pb2.ENTRY_KIND_CHARGE, report_pb2.ENTRY_KIND_LATE_CHARGE)
PAGE_SIZE = 1000


class Receipts:
    """Reads on from where the last reading ended; the first reading skips what was there before."""

    def __init__(self, billing: connection.Connection, account_id: str) -> None:
        self._billing = billing
        self._stub = report_pb2_grpc.ReportServiceStub(billing.channel)
        self._request = report_pb2.ListEntriesRequest(account_id=account_id, page_size=PAGE_SIZE)
        # The last page is read again until there is a next one, so its entries have to be told from new ones.
        self._seen: set[str] = set()
        for _ in self._new_entries():
            pass

    def new(self) -> Iterator[str]:
        """A line for each charge since the last call."""
        for entry in self._new_entries():
            if entry.kind in CHARGES:
                yield receipt(entry)

    def _new_entries(self) -> Iterator[report_pb2.Entry]:
        while True:
            page = self._billing.call(self._stub.ListEntries, self._request)
            for entry in page.entries:
                if entry.entry_id not in self._seen:
                    self._seen.add(entry.entry_id)
                    yield entry
            if len(page.entries) < PAGE_SIZE or not page.next_page_token:
                return
            self._request.page_token = page.next_page_token
            self._seen.clear()


def receipt(entry: report_pb2.Entry) -> str:
    """One charge for people."""
    usage = entry.usage
    cached = f" ({usage.cached_prompt_tokens} cached)" if usage.cached_prompt_tokens else ""
    return (
        f"receipt: {entry.model} on {entry.worker_id}: {usage.prompt_tokens}{cached} + {usage.completion_tokens} tokens, "
        f"${format_usd(-from_money(entry.amount))}, balance ${format_usd(from_money(entry.balance))}"
    )
