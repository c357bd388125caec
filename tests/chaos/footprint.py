"""What a product has open: requests, orphans, settlements, load on workers, tasks and files. For tests that look for leaks."""

import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.chaos.numbered import NumberedWorker
from tests.harness.product import Product


def edge_metrics(product: Product) -> dict[str, float]:
    """The edge's metrics, by name."""
    return metrics_at(product.address("admin"))


def metrics_at(address: str) -> dict[str, float]:
    """The metrics that a listener offers, by name; those with labels added up."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(_exposition(address)):
        for sample in family.samples:
            found[sample.name] += sample.value  # type: ignore[assignment]
    return dict(found)


def lines_of(address: str, *names: str) -> list[str]:
    """The lines of these metrics with their labels, for whoever looks into a failure."""
    return [line for line in _exposition(address).splitlines() if line.startswith(names)]


def _exposition(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


@dataclass(frozen=True)
class Footprint:
    """All of it."""

    open_requests: int
    orphans: int
    unsettled: int
    # On all workers, as the router counts.
    in_flight: int
    # At the workers: requests whose script has not ended.
    at_work: int
    edge_tasks: int
    router_tasks: int
    edge_files: int
    # Without those of its database, which each of its few readers opens when it is first asked.
    billing_files: int
    # Without the connections to workers, of which it may keep idle ones.
    router_files: int

    def is_within(self, before: "Footprint") -> bool:
        """Nothing is open that was not. Less may be: a connection that was just ending counted in `before`."""
        return all(now <= then for now, then in zip(astuple(self), astuple(before), strict=True))


def measure(product: Product, router_metrics: str, workers: Sequence[NumberedWorker]) -> Footprint:
    """The footprint now. `router_metrics` is where the router offers them; `workers` are all that the product has."""
    metrics = edge_metrics(product)
    connections = sum(len(worker.connections) for worker in workers)
    return Footprint(
        open_requests=int(metrics["speedinfer_edge_open_requests"]),
        orphans=int(metrics["speedinfer_edge_orphans"]),
        unsettled=int(metrics["speedinfer_edge_outbox_settlements"]),
        in_flight=sum(product.worker(worker.name)["in_flight"] for worker in workers),
        at_work=sum(not request.answered.is_set() for worker in workers for request in worker.requests),
        edge_tasks=int(metrics["speedinfer_edge_tasks"]),
        router_tasks=int(metrics_at(router_metrics)["speedinfer_router_tasks"]),
        edge_files=psutil.Process(product.pid("edge")).num_fds(),
        billing_files=_billing_files(product),
        router_files=psutil.Process(product.pid("router")).num_fds() - connections,
    )


def _billing_files(product: Product) -> int:
    process = psutil.Process(product.pid("billing"))
    return process.num_fds() - sum("billing.db" in file.path for file in process.open_files())
