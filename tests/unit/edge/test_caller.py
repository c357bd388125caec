"""What a caller may use, as billing tells it."""

from services.edge.key_cache import Caller


def test_an_empty_list_allows_all_and_the_empty_name_alone_none() -> None:
    assert Caller("k", "a", frozenset()).may_use("acme/model-1")
    assert Caller("k", "a", frozenset(["acme/model-1"])).may_use("acme/model-1")
    # So billing tells of a key and an account whose lists have nothing in common.
    assert not Caller("k", "a", frozenset([""])).may_use("acme/model-1")
