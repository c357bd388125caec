"""Group S: how a stream is cut into lines and events."""

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Scenario

_WORDS = ["Hello", ", world"]
_TWO = scripts.usage(12, 2)


SCENARIOS = (Scenario("good", (), scripts.chat_stream("good", _WORDS, _TWO), Answered("Hello, world", 12, 2)),)
