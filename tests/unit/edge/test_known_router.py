"""A router that the edge knows takes requests only while its link does."""

from services.edge.known_router import KnownRouter
from services.edge.metrics import Metrics
from services.edge.relay_link import LinkState, RelayLink


async def test_a_link_that_has_just_learned_that_the_router_leaves_gets_nothing_new() -> None:
    metrics = Metrics()
    router = KnownRouter("127.0.0.1:1", metrics, 65_536, lambda: None, relays=True)
    link = RelayLink(metrics, 65_536)
    link.state = LinkState.READY
    # As `_keep_link` does it, which hears of the next state a turn of the loop later.
    router._use(link)
    assert router.is_ready
    link.state = LinkState.LEAVING
    assert not router.is_ready
    await router.close()
