"""The edge's metrics, as an operator's Prometheus reads them."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.product import Product


def metric(product: Product, name: str, **labels: str) -> float:
    """One sample, without the product's prefix; 0 where there is none yet."""
    text = httpx.get(f"http://{product.address('admin')}/metrics").text
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    wanted = f"speedinfer_edge_{name}"
    return next((each.value for each in samples if each.name == wanted and each.labels == labels), 0.0)
