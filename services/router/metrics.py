"""The router's metrics. The app makes it.

Labels are few words of our own, and the ids of workers, which operators give: no model, key or address becomes one."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.common.metrics_listener import MetricsListener

FRAME_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """One set of metrics for one router, so that several in a process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "speedinfer_router_requests", "Requests by how they ended.", ["outcome"], registry=self.registry
        )
        self._outcomes: dict[str, Counter] = {}
        self.failed_attempts = Counter(
            "speedinfer_router_failed_attempts",
            "Dispatches that failed, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.stale_connections = Counter(
            "speedinfer_router_stale_connections",
            "Requests sent again because the worker had closed a kept connection.",
            registry=self.registry,
        )
        self.usage_inconsistent = Counter(
            "speedinfer_router_usage_inconsistent",
            "Answers charged by counts that cannot all be right, by worker and what is wrong.",
            ["worker", "kind"],
            registry=self.registry,
        )
        self.retries_refused = Counter(
            "speedinfer_router_retries_refused",
            "Second attempts that were not made because too many had been.",
            registry=self.registry,
        )
        self.counts = Counter(
            "speedinfer_router_token_counts",
            "Prompts that a worker was to count before their request was sent, by what came of it.",
            ["outcome"],
            registry=self.registry,
        )
        self.counts_short = Counter(
            "speedinfer_router_token_counts_short",
            "Requests that came to more prompt tokens than were counted for their hold, by the worker that counted.",
            ["worker"],
            registry=self.registry,
        )
        self.waiting = Gauge(
            "speedinfer_router_waiting", "Requests that wait for a place on a worker.", registry=self.registry
        )
        self.in_flight = Gauge("speedinfer_router_in_flight", "Requests that run on workers.", registry=self.registry)
        self.relay_links = Gauge(
            "speedinfer_router_relay_links", "Relay calls of edges that are open.", registry=self.registry
        )
        self.relay_open = Gauge(
            "speedinfer_router_relay_open", "Requests and places that are open on them.", registry=self.registry
        )
        self.relay_frames = Histogram(
            "speedinfer_router_relay_frames_per_message",
            "What went to an edge in one message of a relay call.",
            buckets=FRAME_BUCKETS,
            registry=self.registry,
        )
        self.registry_connected = Gauge(
            "speedinfer_router_registry_connected",
            "1 while the shared registry can be reached, 0 while this router serves with what it knows.",
            registry=self.registry,
        )
        self.routers = Gauge(
            "speedinfer_router_routers", "Routers that share the registry, this one among them.", registry=self.registry
        )
        self.tasks = Gauge("speedinfer_router_tasks", "Tasks of the event loop.", registry=self.registry)
        self._listener: MetricsListener | None = None

    def ended(self, outcome: str) -> None:
        """A request ended so; the outcomes are few."""
        counter = self._outcomes.get(outcome)
        if counter is None:
            counter = self._outcomes[outcome] = self.requests.labels(outcome)
        counter.inc()

    def serve(self, address: str) -> None:
        """Offer them over HTTP. ConfigurationError if the address cannot be had."""
        self._listener = MetricsListener(address, "router.metrics_listen", self.registry)

    def close(self) -> None:
        """Stop offering them."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
