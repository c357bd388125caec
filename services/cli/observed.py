"""What a sidecar shows on `sidecar.observed_listen`: the pages of its machine that Prometheus reads, and nothing else.

Imported by the command's modules only. Nothing here opens a port of ours: each page is asked for on loopback, by Envoy.
"""

from dataclasses import dataclass

from services.cli import ports
from services.cli.failure import CommandError
from services.common.settings import Settings

SETTING = "sidecar.observed_listen"


@dataclass(frozen=True, slots=True)
class Page:
    """One page: GET of exactly this path, without a query, is answered by `asks` of a cluster."""

    path: str
    cluster: str
    # Where that cluster is; empty if the sidecar has it anyway.
    address: str
    asks: str


def pages(settings: Settings, service: str) -> list[Page]:
    """Those of a service's sidecar; none without `sidecar.observed_listen`. Who only calls has its Envoy's alone.

    CommandError if the service would have no metrics to show.
    """
    if not settings.sidecar.observed_listen:
        return []
    sources = metrics_listens(settings, service)
    own = [
        # Processes that share an address have their metrics each: `/metrics`, `/metrics/2`, ...
        Page("/metrics" if number == 1 else f"/metrics/{number}", f"metrics-{number}", address, "/metrics")
        for number, (_, address) in enumerate(sources, 1)
    ]
    if service == "edge":
        own.append(Page("/readyz", "edge", "", "/readyz"))
    admin = settings.sidecar.admin_listen
    return [
        *own,
        Page("/stats/prometheus", "envoy", admin, "/stats/prometheus"),
        Page("/ready", "envoy", "", "/ready"),
    ]


def metrics_listens(settings: Settings, service: str) -> list[tuple[str, str]]:
    """Each setting and address at which a service offers metrics. CommandError if it is to be shown and there is none."""
    if not settings.sidecar.observed_listen:
        return []
    if service == "edge":
        setting, address, count = "edge.admin_listen", settings.edge.admin_listen, settings.edge.workers
    elif service == "router":
        setting, address, count = "router.metrics_listen", settings.router.metrics_listen, 1
    elif service == "billing":
        setting, address, count = "billing.metrics_listen", settings.billing.metrics_listen, 1
    else:
        return []
    if not address or address.endswith(":0"):
        raise CommandError(
            f"{SETTING} is to show the metrics of the {service}: set {setting} to an address on loopback, with a port,"
            " such as 127.0.0.1:9102"
        )
    return [(setting, ports.following(address, setting, index)) for index in range(count)]
