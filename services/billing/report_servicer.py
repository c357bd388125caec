"""ReportService, for finance: it only reads. The composition root uses it."""

from pathlib import Path
from typing import Any

from speedinfer.billing.v1 import report_pb2 as pb
from speedinfer.billing.v1 import report_pb2_grpc

from services.billing import limits, messages, page, seal_key
from services.billing.audit import Findings, audit
from services.billing.clock import Clock
from services.billing.reading import Reading
from services.billing.reservation import State
from services.billing.seal_key import PublicKeys
from services.billing.store.port import EntryRow, Reader
from services.common.errors import ConfigurationError, InvalidArgument, NotFound, ServiceError
from services.common.money import to_money


class ReportServicer(report_pb2_grpc.ReportServiceServicer):
    """See the proto. `audits` is apart from `reading`, so that a long audit holds up nobody's question."""

    def __init__(self, reading: Reading, audits: Reading, clock: Clock, key_path: Path) -> None:
        self._reading = reading
        self._audits = audits
        self._clock = clock
        self._key_path = key_path

    async def ListEntries(self, request: pb.ListEntriesRequest, context: Any) -> pb.ListEntriesResponse:
        """See the proto."""
        # `to` is exclusive: what is booked in this very millisecond belongs to "now".
        since_ms, until_ms = messages.window(request, self._clock.wall_ms() + 1, 0)
        account_id, after = request.account_id, page.place(request.page_token)
        at_most = page.size(request.page_size) + 1

        def question(reader: Reader) -> list[EntryRow]:
            if reader.account(account_id) is None:
                raise NotFound(f"there is no account {account_id}", field="account_id")
            return reader.entries(account_id, since_ms, until_ms, after, at_most)

        entries, last = page.cut(await self._reading.ask(question), request.page_size)
        return pb.ListEntriesResponse(
            entries=[_entry(one) for one in entries], next_page_token=str(last.account_seq) if last else ""
        )

    async def ListAccountIds(self, request: pb.ListAccountIdsRequest, context: Any) -> pb.ListAccountIdsResponse:
        """See the proto."""
        after, at_most = request.page_token, page.size(request.page_size) + 1
        found = await self._reading.ask(lambda reader: reader.accounts(after, at_most))
        accounts, last = page.cut(found, request.page_size)
        return pb.ListAccountIdsResponse(
            account_ids=[one.account_id for one in accounts], next_page_token=last.account_id if last else ""
        )

    async def ListReservations(self, request: pb.ListReservationsRequest, context: Any) -> pb.ListReservationsResponse:
        """See the proto."""
        if not all(State.HELD <= state <= State.LATE for state in request.states):
            raise InvalidArgument("no such state", field="states")
        states = [State(state) for state in request.states]
        account_id, before = request.account_id, request.page_token
        at_most = page.size(request.page_size) + 1
        found = await self._reading.ask(lambda reader: reader.reservations(account_id, states, before, at_most))
        reservations, last = page.cut(found, request.page_size)
        return pb.ListReservationsResponse(
            reservations=[messages.reservation(one) for one in reservations],
            next_page_token=last.reservation_id if last else "",
        )

    async def GetUsage(self, request: pb.GetUsageRequest, context: Any) -> pb.GetUsageResponse:
        """See the proto."""
        now_ms = self._clock.wall_ms()
        since_ms, until_ms = messages.window(request, now_ms + 1, limits.month_start(now_ms))
        account_id = request.account_id
        account, sums = await self._reading.ask(
            lambda reader: (reader.account(account_id), reader.usage(account_id, since_ms, until_ms))
        )
        if account is None:
            raise NotFound(f"there is no account {account_id}", field="account_id")
        response = pb.GetUsageResponse(
            balance=to_money(account.balance_nanos),
            held=to_money(account.held_nanos),
            available=to_money(account.available_nanos),
            to=messages.timestamp(until_ms),
            models=[messages.model_usage(one) for one in sums],
        )
        getattr(response, "from").CopyFrom(messages.timestamp(since_ms))
        return response

    async def VerifyLedger(self, request: pb.VerifyLedgerRequest, context: Any) -> pb.VerifyLedgerResponse:
        """See the proto."""
        keys = self._keys(request.public_keys)
        findings = await self._audits.ask(lambda reader: _audit(reader, keys))
        return pb.VerifyLedgerResponse(
            ok=findings.ok,
            problems=findings.problems,
            accounts=findings.accounts,
            transactions=findings.transactions,
            entries=findings.entries,
            reservations=findings.reservations,
            seals=findings.seals,
        )

    def _keys(self, given: str) -> PublicKeys:
        try:
            return seal_key.read_public(given.encode()) if given else seal_key.own_public(self._key_path)
        except ValueError as error:
            raise InvalidArgument(f"what was given {error}", field="public_keys") from error
        except ConfigurationError as error:
            raise ServiceError(str(error)) from error


def _audit(reader: Reader, keys: PublicKeys) -> Findings:
    with reader.book() as book:
        return audit(book, keys.verify)


def _entry(one: EntryRow) -> pb.Entry:
    entry = pb.Entry(
        entry_id=messages.entry_id(one.number),
        transaction_id=messages.transaction_id(one.transaction),
        account_id=one.account_id,
        kind=int(one.kind),  # type: ignore[arg-type]
        amount=to_money(one.amount_nanos),
        booked_at=messages.timestamp(one.booked_at_ms),
        request_id=one.request_id,
        note=one.note,
        balance=to_money(one.balance_after_nanos),
    )
    if (charge := one.charge) is not None:
        entry.key_id = charge.key_id
        entry.model = charge.model
        entry.price_version = charge.price_version
        entry.usage.CopyFrom(charge.usage.message())
        entry.worker_id = charge.worker_id
        entry.attempts = charge.attempts
    return entry
