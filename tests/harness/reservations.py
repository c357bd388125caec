"""Reads reservations over billing's own gRPC, since the command shows none."""

from dataclasses import dataclass

from speedinfer.billing.v1 import report_pb2, report_pb2_grpc, reservation_pb2

from tests.harness.product import Product

PAGE_SIZE = 1000


@dataclass(frozen=True)
class Held:
    """One reservation: its id, and its state as a word such as `settled`."""

    reservation_id: str
    state: str


def reservations(product: Product, account_id: str) -> list[Held]:
    """All reservations of an account, newest first."""
    metadata = (("authorization", f"Bearer {product.admin_token}"),)
    request = report_pb2.ListReservationsRequest(account_id=account_id, page_size=PAGE_SIZE)
    found: list[Held] = []
    with product.billing() as channel:
        stub = report_pb2_grpc.ReportServiceStub(channel)
        while True:
            page = stub.ListReservations(request, metadata=metadata, timeout=30)
            found += [Held(one.reservation_id, _word(one.state)) for one in page.reservations]
            if not page.next_page_token or len(page.reservations) < PAGE_SIZE:
                return found
            request.page_token = page.next_page_token


def _word(state: reservation_pb2.ReservationState.ValueType) -> str:
    return str(reservation_pb2.ReservationState.Name(state)).removeprefix("RESERVATION_STATE_").lower()
