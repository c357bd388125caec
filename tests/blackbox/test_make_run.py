"""`make run DEMO=0`, and what it says when a port is taken. The demo with its real workers is in tests/sdk."""

import signal
import socket
from pathlib import Path

from tests.harness.demo_run import DemoRun
from tests.harness.product import Product


def test_without_demo_it_starts_the_services_and_says_how_to_register(tmp_path: Path) -> None:
    product = Product(tmp_path)
    with DemoRun(product, demo=False) as run:
        run.wait_for("workers register")
        assert f"SpeedInfer is ready: {product.base_url}" in run.said
        account_id = product.account("3")
        assert run.stop(signal.SIGINT) == 0, run.said
    with DemoRun(product, demo=False) as run:
        run.wait_for("workers register")
        assert product.balance(account_id)["balance"] == "3.000000000"
        assert run.stop(signal.SIGTERM) == 0, run.said
    assert run.said.endswith("stopped\n")


def test_a_port_that_is_taken_is_named_with_the_way_out(tmp_path: Path) -> None:
    product = Product(tmp_path)
    with socket.create_server(("127.0.0.1", product.ports["edge"])), DemoRun(product, demo=False) as run:
        assert run.ended() == 1
    assert product.address("edge") in run.said
    assert "SPEEDINFER_EDGE__LISTEN=" in run.said
    assert "Traceback" not in run.said
