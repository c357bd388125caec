"""An emoji that a worker cuts between two frames comes as half a surrogate pair in each, escaped: both halves go on as they
came. No entry of the table, since some client libraries refuse such texts by their nature."""

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Scenario
from tests.harness.stage import Customer, Stage


async def test_halves_of_a_character_go_on(stage: Stage, customer: Customer) -> None:
    steps = scripts.chat_stream("surrogates", ["\ud83d", "\ude00"], scripts.usage(12, 2))
    scenario = Scenario("surrogates", ("S2",), steps, Answered("\ud83d\ude00", 12, 2))
    stage.play(scenario)
    seen = await stage.ask(customer, scenario)
    assert seen.done
    assert r'"content":"\ud83d"' in seen.payloads[1]
    assert r'"content":"\ude00"' in seen.payloads[2]
    assert seen.content.encode("utf-16", "surrogatepass").decode("utf-16") == "😀"
    stage.assert_charged(customer, scenario)
