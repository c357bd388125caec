"""The auditor passes what is true and catches each kind of lie."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.auditor import audit, price_nanos
from tests.chaos.history import Attempt, Books, Call, Charge, Counts, Ending

COUNTS = Counts(12, 3)
SOFAR = Counts(12, 2)
SENT = ["w1/1:0 ", "w1/1:1 ", "w1/1:2 "]
COST = price_nanos(COUNTS)


class Scene:
    """One call that was answered and charged, which each test changes."""

    def __init__(self) -> None:
        self.call = Call(1, "acc", True, Ending.ANSWERED, "r1", 200, "", "".join(SENT), COUNTS, COST)
        self.attempt = Attempt(1, "r1", "w1", list(SENT), [SOFAR, COUNTS])
        self.charges = [Charge("r1", "acc", COUNTS, COST)]
        self.holds = {"r1": "settled"}
        self.paid_nanos = COST

    def audit(self, *, calm: bool = False) -> list[str]:
        balance = {"acc": 10**10 - self.paid_nanos}
        books = Books(tuple(self.charges), self.holds, {"acc": 10**10}, balance)
        return audit([self.call], [self.attempt], books, calm=calm)

    def ends(self, ending: Ending, text: str = "", usage: Counts | None = None) -> None:
        self.call = replace(self.call, ending=ending, text=text, usage=usage, cost_nanos=None)

    def pays(self, counts: Counts) -> None:
        self.paid_nanos = price_nanos(counts)
        self.charges = [Charge("r1", "acc", counts, self.paid_nanos)]

    def pays_nothing(self) -> None:
        self.charges, self.holds, self.paid_nanos = [], {"r1": "released"}, 0


def test_the_price_is_the_contracts_own_example() -> None:
    assert price_nanos(Counts(12, 5)) == 5_400


def test_what_is_true_passes() -> None:
    assert Scene().audit(calm=True) == []


@pytest.mark.parametrize("ending", [Ending.REFUSED, Ending.FAILED, Ending.LEFT, Ending.LOST])
def test_a_call_that_was_not_answered_and_not_charged_passes(ending: Ending) -> None:
    scene = Scene()
    scene.ends(ending, "" if ending is Ending.REFUSED else SENT[0])
    scene.pays_nothing()
    assert scene.audit() == []


@pytest.mark.parametrize("counts", [SOFAR, COUNTS])
def test_a_client_that_left_may_pay_what_was_reported(counts: Counts) -> None:
    scene = Scene()
    scene.ends(Ending.LEFT, SENT[0])
    scene.pays(counts)
    assert scene.audit(calm=True) == []


def doubled_charge(scene: Scene) -> None:
    scene.charges *= 2
    scene.paid_nanos *= 2


def doubled_charge_of_one_that_left(scene: Scene) -> None:
    scene.ends(Ending.LEFT, SENT[0])
    doubled_charge(scene)


def charge_for_a_refused_call(scene: Scene) -> None:
    scene.ends(Ending.REFUSED)


def charge_for_a_failed_call(scene: Scene) -> None:
    scene.ends(Ending.FAILED, SENT[0])


def wrong_amount(scene: Scene) -> None:
    scene.charges = [Charge("r1", "acc", COUNTS, COST + 1)]
    scene.paid_nanos = COST + 1


def wrong_cost_shown(scene: Scene) -> None:
    scene.call.cost_nanos = COST - 1


def charge_of_other_counts_than_seen(scene: Scene) -> None:
    scene.pays(SOFAR)
    scene.call.cost_nanos = None


def usage_that_no_worker_reported(scene: Scene) -> None:
    scene.attempt.reported = [SOFAR]


def guessed_charge_of_one_that_left(scene: Scene) -> None:
    scene.ends(Ending.LEFT, SENT[0])
    scene.pays(Counts(12, 9))


def charge_of_one_that_was_sent_nothing(scene: Scene) -> None:
    scene.ends(Ending.LOST)
    scene.attempt.sent = []


def other_charge_than_the_client_had_seen(scene: Scene) -> None:
    scene.ends(Ending.LOST, "".join(SENT), COUNTS)
    scene.pays(SOFAR)


def lost_charge(scene: Scene) -> None:
    scene.pays_nothing()


def missing_usage(scene: Scene) -> None:
    scene.call.usage = None


def open_hold(scene: Scene) -> None:
    scene.holds["r2"] = "held"


def settled_without_a_charge(scene: Scene) -> None:
    scene.holds["r2"] = "settled"


def charged_and_released(scene: Scene) -> None:
    scene.holds["r1"] = "released"


def charge_without_a_hold(scene: Scene) -> None:
    scene.holds = {}


def doubled_text(scene: Scene) -> None:
    scene.call.text = SENT[0] + scene.call.text


def lost_text(scene: Scene) -> None:
    scene.call.text = SENT[0] + SENT[2]


def cut_text(scene: Scene) -> None:
    scene.call.text = SENT[0]


def reordered_text_of_one_that_left(scene: Scene) -> None:
    scene.ends(Ending.LEFT, SENT[1] + SENT[0])


def another_workers_text(scene: Scene) -> None:
    scene.ends(Ending.FAILED, "w2/1:0 ")
    scene.pays_nothing()


def several_ids(scene: Scene) -> None:
    scene.attempt.request_id = "r9"


def hung(scene: Scene) -> None:
    scene.ends(Ending.HUNG, SENT[0])


def somebody_elses_charge(scene: Scene) -> None:
    scene.charges = [Charge("r1", "other", COUNTS, COST)]
    scene.paid_nanos = 0


def charge_of_nobodys(scene: Scene) -> None:
    scene.charges.append(Charge("r7", "acc", COUNTS, COST))
    scene.holds["r7"] = "settled"
    scene.paid_nanos *= 2


def wrong_balance(scene: Scene) -> None:
    scene.paid_nanos += 1


LIES = [
    (doubled_charge, "charged 2 times"),
    (doubled_charge_of_one_that_left, "charged 2 times"),
    (charge_for_a_refused_call, "told of a failure"),
    (charge_for_a_failed_call, "told of a failure"),
    (wrong_amount, "nano-USD for"),
    (wrong_cost_shown, "was told"),
    (charge_of_other_counts_than_seen, "and its client saw"),
    (usage_that_no_worker_reported, "which no worker reported"),
    (guessed_charge_of_one_that_left, "which no worker reported"),
    (charge_of_one_that_was_sent_nothing, "nothing was sent"),
    (other_charge_than_the_client_had_seen, "had seen"),
    (lost_charge, "never charged"),
    (missing_usage, "without usage"),
    (open_hold, "still open"),
    (settled_without_a_charge, "0 charges are booked"),
    (charged_and_released, "is released, and 1"),
    (charge_without_a_hold, "without a hold"),
    (doubled_text, "is not what a worker sent"),
    (lost_text, "is not what a worker sent"),
    (cut_text, "is not what a worker sent"),
    (reordered_text_of_one_that_left, "no beginning"),
    (another_workers_text, "no beginning"),
    (several_ids, "several request ids"),
    (hung, "never ended"),
    (somebody_elses_charge, "instead of"),
    (charge_of_nobodys, "nobody knows"),
    (wrong_balance, "account acc has"),
]


@pytest.mark.parametrize(("lie", "words"), LIES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_lie_is_caught(lie: Callable[[Scene], None], words: str) -> None:
    scene = Scene()
    lie(scene)
    found = scene.audit()
    assert any(words in each for each in found), found


def test_in_calm_weather_who_left_with_content_pays() -> None:
    scene = Scene()
    scene.ends(Ending.LEFT, SENT[0])
    scene.pays_nothing()
    assert any("paid nothing" in each for each in scene.audit(calm=True))
