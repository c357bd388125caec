"""Metrics over HTTP: offered while they are to be, and closed without waiting for the server's next look."""

import http.client
import socketserver
import threading

import pytest
from prometheus_client import CollectorRegistry, Counter

from services.common.errors import ConfigurationError
from services.common.metrics_listener import MetricsListener
from tests.harness.ports import free_port

SETTING = "router.metrics_listen"


def test_it_answers_until_it_is_closed_and_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # A server that looks only every ten minutes whether it is to end.
    monkeypatch.setattr(socketserver.BaseServer.serve_forever, "__defaults__", (600.0,))
    registry = CollectorRegistry()
    Counter("speedinfer_test_things", "Things.", registry=registry).inc()
    port = free_port()
    listener = MetricsListener(f"127.0.0.1:{port}", SETTING, registry)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    assert b"speedinfer_test_things_total 1.0" in connection.getresponse().read()
    connection.close()
    closing = threading.Thread(target=listener.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    # Its port is free.
    MetricsListener(f"127.0.0.1:{port}", SETTING, registry).close()


def test_an_address_that_cannot_be_had_is_named_with_its_setting() -> None:
    port = free_port()
    first = MetricsListener(f"127.0.0.1:{port}", SETTING, CollectorRegistry())
    try:
        with pytest.raises(ConfigurationError, match=rf"{SETTING}: cannot listen on 127\.0\.0\.1:{port}: "):
            MetricsListener(f"127.0.0.1:{port}", SETTING, CollectorRegistry())
    finally:
        first.close()
