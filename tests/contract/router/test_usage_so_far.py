"""What the caller knows of usage while a stream runs: never too old, never of an attempt that was superseded."""

from typing import Any

from tests.contract.router.gateway import MODEL, Answer, Gateway
from tests.fakes import scripts
from tests.fakes.scripts import Pause, Reset
from tests.fakes.worker import FakeWorker


def counted(count: Any, finish_reason: str | None = None, **content: Any) -> dict[str, Any]:
    """A frame that says how much was generated up to it."""
    counts = {"prompt_tokens": 12, "completion_tokens": count}
    return {**scripts.delta(MODEL, finish_reason=finish_reason, **content), "usage": counts}


def told(answer: Answer) -> list[int | None]:
    """The completion tokens of each report; None where nothing is known."""
    counts = [report.usage for report in answer.usages]
    return [each.completion_tokens if each.HasField("completion_tokens") else None for each in counts]


async def test_the_last_count_is_told_before_the_data_that_it_covers(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = scripts.stream(
        counted(1, content="Hello"),
        Pause(0.05),
        *[scripts.delta(MODEL, content=" x")] * 48,
        Pause(0.05),
        counted(50, "stop"),
        Pause(0.1),
        done=False,
    )
    await gateway.register(worker.url)
    answer = await gateway.generate()
    assert told(answer) == [1, 50]
    assert answer.counts == (12, 50)
    last = len(answer.kinds) - 1 - answer.kinds[::-1].index("usage")
    assert answer.kinds[last:] == ["usage", "data", "end"]


async def test_counts_of_a_superseded_attempt_are_not_told(
    gateway: Gateway, worker: FakeWorker, second: FakeWorker
) -> None:
    worker.scripts[MODEL] = scripts.stream(counted(7, role="assistant"), Pause(0.05), counted(9, role="x"), Reset())
    second.scripts[MODEL] = scripts.chat_stream(MODEL, ["Hi"], scripts.usage(4, 1))
    await gateway.register(worker.url, "bad", config={"weight": 1000})
    await gateway.register(second.url, "good")
    busy = gateway.worker("good").take(0.0)
    answer = await gateway.generate()
    busy.release()
    assert answer.counts == (4, 1)
    assert len(worker.requests) == 1
    assert 7 not in told(answer)
    assert 9 not in told(answer)


async def test_counts_from_before_the_content_are_told_with_it(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = scripts.stream(
        counted(0, role="assistant"),
        Pause(0.05),
        scripts.delta(MODEL, content="Hello"),
        Pause(0.05),
        counted(2, "stop"),
    )
    await gateway.register(worker.url)
    answer = await gateway.generate()
    assert told(answer) == [0, 2]
    assert answer.kinds[:3] == ["accepted", "usage", "data"]


async def test_a_count_that_cannot_be_one_takes_back_what_was_told(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = scripts.stream(
        counted(1, content="Hello"),
        Pause(0.05),
        counted(-1, content=" x"),
        Pause(0.05),
        counted(3, "stop"),
    )
    await gateway.register(worker.url)
    answer = await gateway.generate()
    assert told(answer) == [1, None, 3]
    assert not answer.usages[1].usage.HasField("prompt_tokens")
