"""The check behind every SDK test: the balance is the credit minus the exact price of the usage that was seen."""

from collections.abc import Mapping
from typing import Any

from services.common.money import format_usd, parse_usd
from tests.harness.charges import total_nanos
from tests.harness.product import Product


def assert_charged(product: Product, account_id: str, *usages: Mapping[str, Any]) -> None:
    """AssertionError unless exactly these were charged, and nothing is held."""
    assert all(usage["prompt_tokens"] > 0 and usage["completion_tokens"] > 0 for usage in usages), usages
    account = product.settled(account_id)
    charged = total_nanos(usages, "0.20", "0.60")
    assert account["balance"] == format_usd(parse_usd("10") - charged)
    kinds = [entry["kind"] for entry in product.entries(account_id)]
    assert kinds == ["credit"] + ["charge"] * len(usages)
