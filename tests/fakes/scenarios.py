"""Scripts by model name, for a fake worker that runs in a process of its own. The names say what happens."""

from tests.fakes import scripts
from tests.fakes.scripts import Hang, Pause, Reset, Script


def by_model() -> dict[str, Script]:
    """Model name -> script. Each answers streams; those that end in `-whole` answer whole."""
    words = ["Hello", ", world"]
    counts = scripts.usage(12, 2)

    def begun(model: str) -> list[object]:
        return [scripts.delta(model, role="assistant", content=""), scripts.delta(model, content="Hello")]

    def cumulative(model: str) -> list[scripts.Step]:
        frames = [
            {**scripts.delta(model, content=f"{number} "), "usage": scripts.usage(10, number)} for number in range(1, 6)
        ]
        return scripts.stream(*frames, {**scripts.delta(model, finish_reason="stop"), "usage": scripts.usage(10, 5)})

    null_usage = [{**scripts.delta("usage-null", content=word), "usage": None} for word in words]
    whole = scripts.chat_whole("no-usage-whole", "Hello", None)
    return {
        "good": scripts.chat_stream("good", words, counts),
        "no-usage": scripts.chat_stream("no-usage", words, None),
        "no-usage-whole": [scripts.json_answer(whole)],
        "no-done": scripts.chat_stream("no-done", words, counts, done=False),
        "left-open": [*scripts.chat_stream("left-open", words, counts, last_chunk=False), Hang()],
        "usage-after-done": scripts.stream(
            *begun("usage-after-done"),
            scripts.delta("usage-after-done", finish_reason="stop"),
            scripts.DONE,
            scripts.frame("usage-after-done", choices=[], usage=counts),
            done=False,
        ),
        "usage-null": scripts.stream(
            *null_usage,
            scripts.delta("usage-null", finish_reason="stop"),
            scripts.frame("usage-null", choices=None, usage=counts),
        ),
        "usage-cumulative": cumulative("usage-cumulative"),
        "reset-first": [Reset()],
        "reset-later": scripts.stream(*begun("reset-later"), Reset()),
        "cut-later": scripts.stream(*begun("cut-later"), scripts.Close()),
        "error-first": scripts.stream({"error": "engine failed"}),
        "error-later": scripts.stream(*begun("error-later"), {"error": {"message": "engine failed", "code": 500}}),
        "hang-first": [Hang()],
        "hang-later": scripts.stream(*begun("hang-later"), Hang()),
        "slow": scripts.stream(
            *begun("slow"),
            *[step for number in range(50) for step in (Pause(0.1), scripts.delta("slow", content=f" {number}"))],
            scripts.delta("slow", finish_reason="stop"),
            scripts.frame("slow", choices=[], usage=scripts.usage(12, 51)),
        ),
        "status-400": [
            scripts.json_answer({"object": "error", "message": "bad request", "param": None, "code": 400}, 400)
        ],
        "status-429": [scripts.json_answer({"error": {"message": "busy"}}, 429, Retry_After="2")],
        "status-500": [scripts.json_answer({"error": {"message": "broken"}}, 500)],
        "status-503": [scripts.answer(503, b"loading", "text/plain")],
        "not-json": scripts.stream("{not json"),
        "html": [scripts.answer(200, b"<html></html>", "text/html")],
    }
