"""What the edge tells of its messages to billing: how many calls share one, and how many wait, each kind by itself."""

import asyncio
from collections.abc import AsyncIterator

from speedinfer.billing.v1.access_pb2 import PresentedKey
from speedinfer.billing.v1.reservation_pb2 import ReserveItem
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem

from services.edge.billing_client import BillingClient
from services.edge.metrics import Metrics
from tests.fakes.scripted_billing import ScriptedBilling
from tests.fakes.scripted_router import accepted, data, end
from tests.unit.edge.conftest import Stand, eventually

KINDS = ("reserves", "settles", "releases", "authorisations")


async def test_messages_and_waiting_calls_are_counted_by_kind() -> None:
    billing, metrics = ScriptedBilling(), Metrics()
    await billing.start()
    client = BillingClient([f"127.0.0.1:{billing.port}"], 10.0, metrics)

    def figure(name: str, kind: str = "reserves") -> float | None:
        return metrics.registry.get_sample_value(f"speedinfer_edge_billing_{name}", {"kind": kind})

    # Every kind is there from the start, at nothing.
    assert [figure("message_items_count", kind) for kind in KINDS] == [0, 0, 0, 0]
    assert [figure("waiting_items", kind) for kind in KINDS] == [0, 0, 0, 0]
    billing.reserves.clear()
    asked = [asyncio.create_task(client.reserve(ReserveItem(reservation_id="a")))]
    await eventually(lambda: figure("message_items_count") == 1)
    asked += [asyncio.create_task(client.reserve(ReserveItem(reservation_id=name))) for name in "bc"]
    await eventually(lambda: figure("waiting_items") == 2)
    assert figure("message_items_sum") == 1
    await client.authorize(PresentedKey(key_id="k"))
    billing.reserves.set()
    await asyncio.gather(*asked)
    assert [name for _, name in billing.calls] == ["a", "b", "c"]
    assert (figure("message_items_count"), figure("message_items_sum"), figure("waiting_items")) == (2, 3, 0)
    assert [figure("message_items_count", kind) for kind in KINDS] == [2, 0, 0, 1]
    await client.close()
    await billing.stop()


async def test_the_edge_tells_of_its_own_messages(stand: Stand) -> None:
    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        yield data(b'{"id":"c1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5}}')
        yield end()

    stand.router.script = script
    assert (await stand.post()).status == 200
    sent = {kind: stand.metric("billing_message_items_sum", kind=kind) for kind in KINDS}
    assert sent == {"reserves": 1, "settles": 1, "releases": 0, "authorisations": 1}
