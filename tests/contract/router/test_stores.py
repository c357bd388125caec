"""What every store of registrations promises: durable one by one, the first time kept, nothing lost that is not understood."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.common.settings import Settings
from services.router.store.open import store_of
from services.router.store.port import Record, Store
from tests.contract.router.registry_database import RegistryDatabase

# What PostgreSQL's own types could not hold stands in it as well.
DOCUMENT = {
    "worker_id": "a",
    "supported_models": ["\u00e9\U0001f642"],
    "runtime_config": {"api_key": "k\0\ud800", "n": 1.5},
}
Opener = Callable[[], Store]


@pytest.fixture(params=["file", pytest.param("postgresql", marks=[pytest.mark.processes, pytest.mark.real])])
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Makes stores of one place, as each start of a router does."""
    values = {"registry": str(tmp_path / "a" / "registry.json")}
    if request.param == "postgresql":
        database: RegistryDatabase = request.getfixturevalue("shared_database")
        values["database"] = database.url
    stores: list[Store] = []

    def make() -> Store:
        stores.append(store_of(Settings.model_validate({"data_dir": tmp_path, "router": values})))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


async def kept(opener: Opener) -> dict[str, Record]:
    """What another start finds."""
    store = opener()
    await store.open()
    picture = await store.load()
    assert picture.worker_ids == {record.worker_id for record in picture.changed}
    return {record.worker_id: record for record in picture.changed}


async def test_what_was_put_is_there_after_a_start(opener: Opener) -> None:
    assert await kept(opener) == {}
    store = opener()
    await store.open()
    stored = await store.put(Record(DOCUMENT, 1.5))
    assert (dict(stored.document), stored.registered_at_s, stored.draining) == (DOCUMENT, 1.5, False)
    await store.put(Record({"worker_id": "b"}, 2.0))
    found = await kept(opener)
    assert sorted(found) == ["a", "b"]
    assert dict(found["a"].document) == DOCUMENT
    assert found["a"].registered_at_s == 1.5


async def test_putting_again_replaces_keeps_the_first_time_and_ends_a_drain(opener: Opener) -> None:
    store = opener()
    await store.open()
    await store.put(Record({"worker_id": "a"}, 1.0))
    drained = await store.drain("a")
    assert drained is not None
    assert drained.draining
    assert (await kept(opener))["a"].draining
    again = await store.put(Record({"worker_id": "a", "runtime": "vllm"}, 9.0))
    assert (again.document["runtime"], again.registered_at_s, again.draining) == ("vllm", 1.0, False)
    assert not (await kept(opener))["a"].draining


async def test_removing_and_draining_what_is_not_there(opener: Opener) -> None:
    store = opener()
    await store.open()
    await store.put(Record({"worker_id": "a"}, 1.0))
    assert await store.remove("a")
    assert not await store.remove("a")
    assert await store.drain("a") is None
    assert not await store.remove("w\0" * 9_000)
    assert await kept(opener) == {}
