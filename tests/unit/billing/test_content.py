"""What counts as the same content, and which difference is named; how old an id may be."""

from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.common.v1.context_pb2 import RequestContext

from services.billing.content import canonical, first_difference
from services.billing.identity import Age, age
from services.common.ids import uuid7


def item(**fields: object) -> pb.ReserveItem:
    return pb.ReserveItem(**{"reservation_id": "a", "key_id": "k", "model": "m", **fields})


def test_deadline_and_trace_are_no_content() -> None:
    stored = canonical(item(context=RequestContext(remaining_ms=5, traceparent="x")))
    assert first_difference(stored, item(context=RequestContext(remaining_ms=4, attempt=2))) == ""


def test_the_first_difference_by_number_is_named() -> None:
    stored = canonical(item(output_limit=5, prompt=pb.PromptSize(text_bytes=1)))
    assert first_difference(stored, item(model="n", output_limit=6)) == "model"
    assert first_difference(stored, item(output_limit=5)) == "prompt"
    assert first_difference(stored, item(prompt=pb.PromptSize(text_bytes=1, images=1))) == "prompt.images"
    # Zero is not absent.
    assert first_difference(canonical(item()), item(counted_prompt_tokens=0)) == "counted_prompt_tokens"


def test_the_age_of_an_id() -> None:
    now_ms, day_ms = 1_800_000_000_000, 86_400_000
    for text, outcome in (
        ("", Age.MALFORMED),
        ("2f1e6ab2-6f0a-4b1e-8d5e-111111111111", Age.MALFORMED),
        (uuid7(now_ms).upper(), Age.MALFORMED),
        (uuid7(now_ms), Age.GOOD),
        (uuid7(now_ms - 90 * day_ms), Age.GOOD),
        (uuid7(now_ms - 90 * day_ms - 1), Age.EXPIRED),
        (uuid7(now_ms + 5 * 60_000), Age.GOOD),
        (uuid7(now_ms + 5 * 60_000 + 1), Age.FUTURE),
    ):
        assert age(text, now_ms, 90) is outcome
