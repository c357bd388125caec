"""Price lists as files: what is written is read again the same, and what is wrong is said with its line."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from speedinfer.billing.v1 import price_pb2 as pb

from services.cli import price_csv, price_list, price_toml
from services.cli.price_list import Entry, WrongLine
from services.common.money import to_money

Read = Callable[[str], tuple[list[Entry], list[WrongLine]]]
HEADER = "model,account_id,effective_from,from_prompt_tokens,prompt,cached_prompt,completion,max_output_tokens\n"


def tier(start: int, nanos: int, cached: int | None = None) -> pb.PriceTier:
    made = pb.PriceTier(from_prompt_tokens=start, prompt=to_money(nanos), completion=to_money(3 * nanos))
    if cached is not None:
        made.cached_prompt.CopyFrom(to_money(cached))
    return made


def version(model: str = "acme/model-1", account_id: str = "", *tiers: pb.PriceTier) -> pb.PriceVersion:
    return pb.PriceVersion(
        version="prc_1",
        model=model,
        account_id=account_id,
        effective_from=Timestamp(seconds=1_770_000_000, nanos=7_000_000),
        tiers=tiers or [tier(0, 200_000_001, 5)],
        bounds=pb.ModelBounds(max_output_tokens=4096, template_request_tokens=0),
    )


VERSIONS = [
    version("acme/model-1", "", tier(0, 200_000_001, 5), tier(128_000, 10**14, 0), tier(2**31, 0, 0)),
    version("acme/model-1", "acct_1"),
    version("=a,\"\\'\n\t\x7fé\U0001f600"),
    version("-5"),
    version("'=quoted"),
]


def csv_text(versions: list[pb.PriceVersion]) -> str:
    return price_csv.write(row for one in versions for row in price_list.rows(one))


def toml_text(versions: list[pb.PriceVersion]) -> str:
    return price_toml.write([price_list.rows(one) for one in versions])


@pytest.mark.parametrize(("write", "read"), [(csv_text, price_csv.read), (toml_text, price_toml.read)])
def test_what_is_written_is_read_again_the_same(write: Callable[[list[pb.PriceVersion]], str], read: Read) -> None:
    entries, wrong = read(write(VERSIONS))
    wanted, more = price_list.wanted(entries, None)
    assert (wrong, more) == ([], [])
    assert len(wanted) == len(VERSIONS)
    for one, expected in zip(wanted, VERSIONS, strict=True):
        item = one.item
        assert (item.model, item.account_id, item.effective_from) == (
            expected.model,
            expected.account_id,
            expected.effective_from,
        )
        assert list(item.tiers) == list(expected.tiers)
        assert item.bounds == expected.bounds
        assert price_list.stands(one, [expected])


def said(read: Read, text: str) -> list[tuple[int, str]]:
    entries, wrong = read(text)
    return [(one.line, one.message) for one in (*wrong, *price_list.wanted(entries, None)[1])]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "columns are missing: model, prompt, completion"),
        ("model,prompt,completion,color\n", 1, "unknown columns: color"),
        ("model,prompt,completion,model\n", 1, "a column stands twice"),
        (HEADER + "m,,,0,1,,2,\n\nn,,,0,abc,,2,\n", 4, "prompt: 'abc' is not an amount"),
        (HEADER + "m,,,0,-1,,2,\n", 2, "prompt: a price may not be negative"),
        (HEADER + "m,,,0,1,,,\n", 2, "completion is missing; a price of 0 must be said"),
        (HEADER + ",,,0,1,,2,\n", 2, "model is missing"),
        (HEADER + "m ,,,0,1,,2,\n", 2, "model begins or ends with a space"),
        (HEADER + "m,,tomorrow,0,1,,2,\n", 2, "effective_from: 'tomorrow' is not a time"),
        (HEADER + "m,,,0,1,,2,-4\n", 2, "max_output_tokens: '-4' is not a whole number"),
        (HEADER + "m,,,5,1,,2,\n", 2, "a tier stands below the row from 0"),
        (HEADER + "m,,,0,1,,2,\nn,,,5,1,,2,\n", 3, "a tier stands below the row from 0"),
        (HEADER + "m,,,0,1,,2,\nm,,,5,1,,2,9\n", 3, "bounds stand in a version's first row: max_output_tokens"),
        (HEADER + "m,,,0,1,,2,\nm,,,0,1,,2,\n", 3, "line 2 has a price of that model from the same moment already"),
        (HEADER + "m,,,0,1,,2,,\n", 2, "it has 1 cells too many"),
        (HEADER + "m,,,0,1\n", 2, "it has 3 cells too few"),
        (HEADER + 'm,,,0,"1,,2,\n', 2, "this is not CSV"),
        (HEADER + "m,,,0,1e3,,2,\n", 2, "prompt: '1e3' is not an amount"),
    ],
)
def test_what_is_wrong_with_a_csv_is_said_with_its_line(text: str, line: int, message: str) -> None:
    (found,) = said(price_csv.read, text)
    assert found[0] == line
    assert found[1].startswith(message)


PRICE = '[[prices]]\nmodel = "m"\nprompt = 1\ncompletion = "2"\n'


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[[prices]\n", 1, "this is not TOML"),
        (PRICE + "prompt = 2\n", 5, "this is not TOML"),
        ("price = 1\n", 1, "only [[prices]] is expected, not price"),
        ("prices = 1\n", 1, "prices must be tables"),
        (PRICE + PRICE.replace('"m"', '"n"') + "cost = 1\n", 5, "cost is not known"),
        (PRICE + PRICE.replace('"m"', "true"), 5, "model: text or a number is expected"),
        (PRICE + PRICE.replace('"m"', '"n"').replace("1", "nan"), 5, "prompt: 'nan' is not an amount"),
        (PRICE + "[[prices.tiers]]\nprompt = 1\n", 5, "completion is missing"),
        (PRICE + "[prices.bounds]\nspeed = 1\n", 1, "speed is not known"),
        (PRICE + "bounds = 1\n", 1, "bounds must be a table"),
        (PRICE + "tiers = [1]\n", 1, "tiers must be tables"),
        (PRICE + "\n" + PRICE, 6, "line 1 has a price of that model from the same moment already"),
    ],
)
def test_what_is_wrong_with_a_toml_is_said_with_its_line(text: str, line: int, message: str) -> None:
    found = said(price_toml.read, text)
    assert found[0][0] == line
    assert found[0][1].startswith(message)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    found = said(price_csv.read, HEADER + "m,,,0,x,y,z,a\nn,,never,0,1,,2,\n")
    assert [line for line, _ in found] == [2, 2, 2, 2, 3]


def test_a_decimal_in_toml_is_exact_and_a_time_may_be_one() -> None:
    text = '[[prices]]\nmodel = "m"\nprompt = 0.123456789\ncompletion = 12345678.123456789\n'
    entries, _ = price_toml.read(text + "effective_from = 2026-02-02T02:40:00+01:00\n")
    ((wanted,), wrong) = price_list.wanted(entries, None)
    assert wrong == []
    assert wanted.item.tiers[0].prompt == to_money(123_456_789)
    assert wanted.item.tiers[0].completion == to_money(12_345_678_123_456_789)
    assert wanted.item.effective_from.ToDatetime(UTC) == datetime(2026, 2, 2, 1, 40, tzinfo=UTC)


def test_billing_s_words_find_their_line() -> None:
    entries, _ = price_csv.read(HEADER + "m,,,0,1,,2,\nm,,,5,1,,2,\n")
    ((wanted,), _) = price_list.wanted(entries, None)
    assert [wanted.line_of(name) for name in ("tiers[1].prompt", "tiers[0].prompt", "tiers[9]", "model", "")] == [
        *(3, 2, 2, 2, 2)
    ]


def test_a_list_is_bounded() -> None:
    entries, _ = price_csv.read(HEADER + "".join(f"m{number},,,0,1,,2,\n" for number in range(1_001)))
    assert price_list.wanted(entries, None) == ([], [WrongLine(1_002, "a list has at most 1000 prices")])


def test_what_differs_does_not_stand_already() -> None:
    entries, _ = price_csv.read(csv_text([version()]))
    ((wanted,), _) = price_list.wanted(entries, None)
    dearer = version()
    dearer.tiers[0].completion.CopyFrom(to_money(1))
    longer = version()
    longer.bounds.max_output_tokens = 1
    later = version()
    later.effective_from.seconds += 1
    for other in (dearer, longer, later, version("n"), version("acme/model-1", "acct_1")):
        assert not price_list.stands(wanted, [other])
    # Of the same moment the one that was set last counts.
    assert not price_list.stands(wanted, [dearer, version()])
    # With a moment of its own it is another version, which says nothing of what stands.
    ((moved,), _) = price_list.wanted(entries, datetime(2030, 1, 1, tzinfo=UTC))
    assert moved.item.effective_from.ToDatetime(UTC) == datetime(2030, 1, 1, tzinfo=UTC)
    assert not price_list.stands(moved, [version()])


def test_versions_are_set_in_the_order_of_their_moments() -> None:
    rows = "m,,2026-03-01,0,1,,2,\nm,,2026-01-01,0,1,,2,\nm,,,0,1,,2,\n"
    entries, _ = price_csv.read(HEADER + rows)
    wanted, _ = price_list.wanted(entries, None)
    now_ms = int(datetime(2026, 2, 1, tzinfo=UTC).timestamp()) * 1000
    assert [one.entry.line for one in price_list.in_order(wanted, now_ms)] == [3, 4, 2]
