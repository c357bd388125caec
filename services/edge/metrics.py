"""The edge's metrics, in a registry of their own so that a process (or a test) may hold several edges.

Labels are bounded: routes by their pattern, codes from the error table, outcomes from enums, routers by the address that the
settings lead to; never a key, an account or a model.
"""

from collections.abc import Callable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Up to what a message takes.
_MESSAGE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_FRAME_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_FIRST_TOKEN_BUCKETS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class OutboxFigures(Protocol):
    """What the outbox tells of itself."""

    def __len__(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def oldest_s(self) -> float: ...

    @property
    def sound(self) -> bool: ...

    @property
    def quarantine_bytes(self) -> int: ...


class Metrics:
    """Counters and gauges; each name says its unit."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "speedinfer_edge_requests",
            "Requests answered, by route, status and error code",
            ["route", "status", "code"],
            registry=self.registry,
        )
        self.open_requests = Gauge(
            "speedinfer_edge_open_requests", "Inference requests in flight", registry=self.registry
        )
        self.connections_refused = Counter(
            "speedinfer_edge_connections_refused",
            "Connections that were closed at once, since there were too many",
            registry=self.registry,
        )
        self.settlements = Counter(
            "speedinfer_edge_settlements", "Settlements, by billing's answer", ["outcome"], registry=self.registry
        )
        self.prompt_counts = Counter(
            "speedinfer_edge_prompt_counts",
            "Refusals for want of credit before which a worker was to count the prompt, by what came of it",
            ["outcome"],
            registry=self.registry,
        )
        self.journaled = Counter(
            "speedinfer_edge_settlements_journaled",
            "Answers that ended on the outbox's word because billing was silent",
            registry=self.registry,
        )
        self.quarantined = Counter(
            "speedinfer_edge_settlements_quarantined",
            "Settlements that billing will never book; each needs a person",
            registry=self.registry,
        )
        self.releases = Counter(
            "speedinfer_edge_releases", "Holds given back, by cause", ["cause"], registry=self.registry
        )
        self.unmetered = Counter(
            "speedinfer_edge_unmetered",
            "Requests whose client left with content and whose worker reported nothing; released",
            registry=self.registry,
        )
        self.left = Counter(
            "speedinfer_edge_clients_left",
            "Requests whose client left, by what was done",
            ["verdict"],
            registry=self.registry,
        )
        self.orphans = Gauge(
            "speedinfer_edge_orphans", "Streams that are read on without their client", registry=self.registry
        )
        self.outbox_adopted = Counter(
            "speedinfer_edge_outbox_adopted",
            "Settlements that came with the files of dead edges",
            registry=self.registry,
        )
        self.outbox_replays = Counter(
            "speedinfer_edge_outbox_replays", "Settlements sent again", registry=self.registry
        )
        self.outbox_failures = Counter(
            "speedinfer_edge_outbox_failures",
            "What the outbox's disk did not do, by operation",
            ["operation"],
            registry=self.registry,
        )
        self.outbox_refusals = Counter(
            "speedinfer_edge_outbox_refusals",
            "Requests turned away because the outbox is full or broken",
            ["why"],
            registry=self.registry,
        )
        self.unreadable = Counter(
            "speedinfer_edge_outbox_unreadable",
            "Lines of the outbox that could not be read; kept in the quarantine",
            registry=self.registry,
        )
        self.billing_message_items = Histogram(
            "speedinfer_edge_billing_message_items",
            "Calls of one kind that shared a message to billing, each time it was sent",
            ["kind"],
            buckets=_MESSAGE_BUCKETS,
            registry=self.registry,
        )
        self.billing_waiting_items = Gauge(
            "speedinfer_edge_billing_waiting_items",
            "Calls of one kind that wait for the next message to billing",
            ["kind"],
            registry=self.registry,
        )
        self.billings_fit = Gauge(
            "speedinfer_edge_billings_fit", "Billing processes that are not on probation", registry=self.registry
        )
        self.billing_moves = Counter(
            "speedinfer_edge_billing_moves",
            "Messages that went on to another billing process, by what the one before did",
            ["why"],
            registry=self.registry,
        )
        self.relay_links = Gauge(
            "speedinfer_edge_relay_links", "Routers with a relay call that takes requests", registry=self.registry
        )
        self.routers_silent = Gauge(
            "speedinfer_edge_routers_silent",
            "Routers that say nothing, though they were asked",
            registry=self.registry,
        )
        self.router_moves = Counter(
            "speedinfer_edge_router_moves",
            "Requests, and waits for a place, that went on to another router because theirs was silent",
            registry=self.registry,
        )
        self.relay_open = Gauge(
            "speedinfer_edge_relay_open",
            "Requests and places that are open at a router, by the router's address",
            ["router"],
            registry=self.registry,
        )
        self.relay_frames = Histogram(
            "speedinfer_edge_relay_frames_per_message",
            "What came from a router in one message of a relay call",
            buckets=_FRAME_BUCKETS,
            registry=self.registry,
        )
        self.tasks = Gauge("speedinfer_edge_tasks", "Tasks of the event loop", registry=self.registry)
        self.first_token_seconds = Histogram(
            "speedinfer_edge_first_token_seconds",
            "From a request's arrival to its first content",
            buckets=_FIRST_TOKEN_BUCKETS_S,
            registry=self.registry,
        )

    def watch(self, outbox: OutboxFigures) -> None:
        """Show what the outbox holds, whenever somebody looks."""
        figures: list[tuple[str, str, Callable[[], float]]] = [
            ("outbox_settlements", "Settlements without billing's answer", lambda: len(outbox)),
            ("outbox_bytes", "Size of the outbox's files", lambda: outbox.size_bytes),
            ("outbox_oldest_seconds", "How long the oldest of them has been waiting", lambda: outbox.oldest_s),
            ("outbox_sound", "1 while the disk takes settlements, else 0", lambda: outbox.sound),
            ("quarantine_bytes", "Size of quarantine.jsonl, which waits for a person", lambda: outbox.quarantine_bytes),
        ]
        for name, what, look in figures:
            Gauge(f"speedinfer_edge_{name}", what, registry=self.registry).set_function(look)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)
