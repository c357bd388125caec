"""A whole answer that is good: what a request gets that should never be sent, and what is varied."""

from dataclasses import replace

from tests.fakes import scripts
from tests.fakes.scenario import Answered
from tests.fakes.scenarios import table

WELL = replace(
    table.ALL["good"],
    script=[scripts.json_answer(scripts.chat_whole("good", "Hello", scripts.usage(12, 2)))],
    stream=False,
    outcome=Answered("Hello", 12, 2),
)
