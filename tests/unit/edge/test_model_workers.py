"""A model's workers are judged once for each picture, and as if they were judged each time."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speedinfer.router.v1.fleet_pb2 import Feature, Fleet, Model, Worker, WorkerStatus

from services.edge import capability, model_workers
from services.edge.fleet_picture import FleetPicture
from services.edge.model_workers import ModelWorkers
from services.edge.openai_request import Need

MODEL = "acme/model-1"
FEATURES = [Feature.FEATURE_CHAT, Feature.FEATURE_TOOLS, Feature.FEATURE_LOGPROBS]
HEALTHY, UNHEALTHY = WorkerStatus.WORKER_STATUS_HEALTHY, WorkerStatus.WORKER_STATUS_UNHEALTHY
CHAT = (Need(Feature.FEATURE_CHAT, ""),)

some_workers = st.lists(
    st.builds(
        Worker,
        worker_id=st.sampled_from(["a", "b", "c"]),
        status=st.sampled_from([HEALTHY, UNHEALTHY]),
        circuit=st.sampled_from(["closed", "open"]),
        max_concurrency=st.sampled_from([0, 1]),
        features=st.lists(st.sampled_from(FEATURES), unique=True),
        counts_tokens=st.booleans(),
    ),
    max_size=4,
)
some_needs = st.lists(
    st.builds(Need, st.sampled_from(FEATURES), st.sampled_from(["", "tools", "logprobs"])), max_size=3
)


def has_room(workers: Sequence[Worker], needs: Sequence[Need]) -> bool:
    """Written out once more: one that is in service, can do all of it, and has no bound."""
    for worker in workers:
        able = all(need.feature in worker.features for need in needs)
        if able and worker.status == HEALTHY and worker.circuit == "closed" and not worker.max_concurrency:
            return True
    return False


@given(some_workers, st.lists(some_needs, min_size=1, max_size=6))
def test_the_first_answer_and_every_later_one_are_what_is_so(
    workers: list[Worker], asked: list[Sequence[Need]]
) -> None:
    judged = ModelWorkers(MODEL, workers)
    # Twice: found out, then remembered; and needs that differ in their members alone share what is remembered.
    for needs in asked * 2:
        assert judged.judge(needs) == capability.judge(workers, needs, MODEL)
        assert judged.has_room(needs) == has_room(workers, needs)
    assert judged.healthy == len([worker for worker in workers if worker.status == HEALTHY])
    assert judged.ids == [worker.worker_id for worker in workers]
    assert judged.count_tokens == (True in [worker.counts_tokens for worker in workers])


@pytest.mark.parametrize(
    ("status", "circuit", "max_concurrency", "room"),
    [
        (HEALTHY, "closed", 0, True),
        (UNHEALTHY, "closed", 0, False),
        (HEALTHY, "open", 0, False),
        (HEALTHY, "closed", 1, False),
    ],
)
def test_there_is_room_always_at_a_worker_in_service_without_a_bound(
    status: WorkerStatus.ValueType, circuit: str, max_concurrency: int, room: bool
) -> None:
    worker = Worker(status=status, circuit=circuit, max_concurrency=max_concurrency, features=FEATURES)
    assert ModelWorkers(MODEL, [worker]).has_room(CHAT) == room
    assert not ModelWorkers(MODEL, [worker]).has_room([Need(Feature.FEATURE_IMAGES, "messages")])


class Looked(list[Worker]):
    """Workers that count how often somebody went through them."""

    times = 0

    def __iter__(self) -> Iterator[Worker]:
        self.times += 1
        return super().__iter__()


def test_the_same_needs_are_judged_once() -> None:
    workers = Looked([Worker(worker_id="a", status=HEALTHY, circuit="closed", features=FEATURES)])
    judged = ModelWorkers(MODEL, workers)

    def asked() -> tuple[object, ...]:
        return judged.judge(CHAT), judged.has_room(CHAT), judged.healthy, judged.ids, judged.count_tokens

    first, looks = asked(), workers.times
    assert asked() == first
    assert workers.times == looks > 0


def test_few_judgements_are_remembered_however_many_are_asked_for() -> None:
    judged = ModelWorkers(MODEL, [Worker(worker_id="a", status=HEALTHY, circuit="closed", features=[1, 2])])
    for number in range(3 * model_workers.MAX_REMEMBERED):
        needs = [Need(1, ""), Need(number, "")]  # type: ignore[arg-type]
        assert (judged.judge(needs) is None) == judged.has_room(needs) == (number in (1, 2))
        assert len(judged._may_serve) <= model_workers.MAX_REMEMBERED >= len(judged._has_room)


def picture(version: int, status: WorkerStatus.ValueType, *worker_ids: str) -> Fleet:
    return Fleet(
        router_id="router-1",
        version=version,
        models=[Model(name=MODEL, worker_ids=worker_ids)],
        workers=[
            Worker(worker_id=each, status=status, circuit="closed", features=FEATURES, counts_tokens=True)
            for each in worker_ids
        ],
    )


def test_a_judgement_ends_with_its_picture() -> None:
    known = FleetPicture()
    assert known.workers_of(MODEL) is None
    for version, status, ids in ((1, HEALTHY, ["a"]), (2, UNHEALTHY, ["a", "b"]), (3, HEALTHY, ["b"])):
        known.take(picture(version, status, *ids))
        workers = known.workers_of(MODEL)
        assert workers is not None
        assert workers is known.workers_of(MODEL)
        in_service = status == HEALTHY
        assert (workers.judge(CHAT) is None, workers.has_room(CHAT)) == (in_service, in_service)
        assert (workers.ids, workers.healthy) == (ids, len(ids) if in_service else 0)
    # An older one is not taken, and takes nothing away.
    known.take(picture(2, UNHEALTHY, "a"))
    assert known.workers_of(MODEL) is workers
    known.take(picture(4, HEALTHY))
    assert known.workers_of(MODEL) is None
