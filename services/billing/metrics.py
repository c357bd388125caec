"""Billing's metrics, in a registry of their own. The engine and the servicers count, the composition root exposes.

Floats are fine here: no figure of a metric ever comes back into the books.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """One of each, named `speedinfer_billing_...`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reservations = Counter(
            "speedinfer_billing_reservations", "Reserve items by outcome", ["outcome"], registry=self.registry
        )
        self.settlements = Counter(
            "speedinfer_billing_settlements", "Settle items by outcome", ["outcome"], registry=self.registry
        )
        self.releases = Counter(
            "speedinfer_billing_releases", "Release items by outcome", ["outcome"], registry=self.registry
        )
        self.expired = Counter("speedinfer_billing_expired", "Holds that lapsed", registry=self.registry)
        self.overruns = Counter(
            "speedinfer_billing_overruns", "Charges of more than their hold", registry=self.registry
        )
        self.hold_to_charge = Histogram(
            "speedinfer_billing_hold_to_charge_ratio",
            "Hold divided by charge, of charges above zero",
            buckets=(0.5, 1, 1.25, 1.5, 2, 2.5, 3, 4, 6, 10, 20, 50, 100, 1000),
            registry=self.registry,
        )
        self.open_holds = Gauge("speedinfer_billing_open_holds", "Open holds", registry=self.registry)
        self.sweeps = Gauge(
            "speedinfer_billing_sweeps",
            "1 where this process lets holds lapse and makes the seals; of several on one database it is one",
            registry=self.registry,
        )
        self.queue_depth = Gauge("speedinfer_billing_queue_items", "Items that wait", registry=self.registry)
        self.refused_full = Counter(
            "speedinfer_billing_queue_full", "Items refused because the queue was full", registry=self.registry
        )
        self.batch_items = Histogram(
            "speedinfer_billing_batch_items",
            "Items committed together",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
            registry=self.registry,
        )
        self.commit_seconds = Histogram(
            "speedinfer_billing_batch_seconds",
            "From the start of a batch until it is on disk",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5),
            registry=self.registry,
        )
        self.seals = Counter("speedinfer_billing_seals", "Seals that were made", registry=self.registry)
        self.failed_seals = Counter(
            "speedinfer_billing_failed_seals", "Times that a seal was due and not made", registry=self.registry
        )
        self.failed_commits = Counter(
            "speedinfer_billing_failed_batches", "Batches that the database did not store", registry=self.registry
        )
