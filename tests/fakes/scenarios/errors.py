"""Group E, second half: every way in which a worker says no."""

from tests.fakes import scripts
from tests.fakes.scenario import Failed, Scenario

SCENARIOS = (
    Scenario("error-first", ("E3",), scripts.stream({"error": "engine failed"}), Failed("upstream_error", status=502)),
    Scenario(
        "refused-flat",
        ("E5", "E7"),
        [scripts.json_answer({"object": "error", "message": "bad request", "param": None, "code": 400}, 400)],
        Failed("invalid_request_error", status=400, says=("bad request",)),
    ),
)
