"""Reads the books of a product's accounts once nothing is held any more."""

from collections.abc import Sequence

from services.common.money import parse_usd
from tests.chaos.footprint import edge_metrics
from tests.chaos.history import Books, Charge, Counts
from tests.harness.product import Product
from tests.harness.reservations import reservations
from tests.harness.until import until

CHARGES = ("charge", "late_charge")


def read(product: Product, account_ids: Sequence[str], timeout_s: float = 60.0) -> Books:
    """Everything that is booked of these accounts. Waits until no hold is open; what then still is, is in the books."""
    charges: list[Charge] = []
    holds: dict[str, str] = {}
    credit: dict[str, int] = {}
    balance: dict[str, int] = {}
    for account_id in account_ids:
        balance[account_id] = parse_usd(product.settled(account_id, timeout_s)["balance"])
        holds |= {held.reservation_id: held.state for held in reservations(product, account_id)}
        credit[account_id] = 0
        for entry in product.entries(account_id):
            amount = parse_usd(entry["amount"])
            if entry["kind"] not in CHARGES:
                credit[account_id] += amount
                continue
            counts = Counts(entry["usage"]["prompt_tokens"], entry["usage"]["completion_tokens"])
            charges.append(Charge(entry["request_id"], account_id, counts, -amount))
    return Books(tuple(charges), holds, credit, balance)


def problems_of_the_product(product: Product) -> list[str]:
    """What the product itself says is out of order: its audit, and settlements that nobody would book."""
    found = []
    audit = product.run("ledger", "verify")
    if audit.code != 0:
        found.append(f"ledger verify exits {audit.code}: {audit.out}{audit.err}")
    quarantined = [
        path for path in product.data_dir.rglob("*quarantine*") if path.is_file() and path.read_bytes().strip()
    ]
    return found + [f"{path.name} holds {path.read_text()}" for path in quarantined]


def wait_until_delivered(product: Product, timeout_s: float = 60.0) -> None:
    """Wait until the edge's outbox is empty."""
    until(
        lambda: edge_metrics(product)["speedinfer_edge_outbox_settlements"] == 0,
        "every settlement is booked",
        timeout_s,
    )
