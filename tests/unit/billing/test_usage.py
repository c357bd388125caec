"""Which reports can be charged."""

from typing import Any

import pytest
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_EMBEDDING
from speedinfer.common.v1.usage_pb2 import Usage

from services.billing.usage import MAX_COUNT, Counts, read


@pytest.mark.parametrize(
    ("report", "operation", "outcome"),
    [
        ({"prompt_tokens": 0, "completion_tokens": 0}, OPERATION_CHAT_COMPLETION, Counts(0, None, 0)),
        (
            {"prompt_tokens": MAX_COUNT, "completion_tokens": MAX_COUNT, "cached_prompt_tokens": 0},
            OPERATION_CHAT_COMPLETION,
            Counts(MAX_COUNT, 0, MAX_COUNT),
        ),
        (
            {"prompt_tokens": 3, "completion_tokens": 1, "cached_prompt_tokens": 4},
            OPERATION_CHAT_COMPLETION,
            Counts(3, 3, 1),
        ),
        ({"prompt_tokens": 3}, OPERATION_EMBEDDING, Counts(3, None, None)),
        ({"prompt_tokens": 3}, OPERATION_CHAT_COMPLETION, "usage.completion_tokens"),
        ({"completion_tokens": 3}, OPERATION_CHAT_COMPLETION, "usage.prompt_tokens"),
        ({}, OPERATION_EMBEDDING, "usage.prompt_tokens"),
        ({"prompt_tokens": -1, "completion_tokens": 1}, OPERATION_CHAT_COMPLETION, "usage.prompt_tokens"),
        ({"prompt_tokens": MAX_COUNT + 1, "completion_tokens": 1}, OPERATION_CHAT_COMPLETION, "usage.prompt_tokens"),
        ({"prompt_tokens": 1, "completion_tokens": -1}, OPERATION_EMBEDDING, "usage.completion_tokens"),
        (
            {"prompt_tokens": 1, "completion_tokens": 1, "cached_prompt_tokens": -1},
            OPERATION_CHAT_COMPLETION,
            "usage.cached_prompt_tokens",
        ),
    ],
)
def test_report(report: dict[str, Any], operation: int, outcome: Counts | str) -> None:
    assert read(Usage(**report), operation) == outcome
