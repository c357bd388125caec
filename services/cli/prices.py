"""`speedinfer prices`: what tokens of a model cost, and what bounds a request. Typed as USD per million tokens."""

import sys
from collections import defaultdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from speedinfer.billing.v1 import price_pb2, price_pb2_grpc
from speedinfer.billing.v1.account_pb2 import MutationStatus

from services.cli import connection, output, price_csv, price_list, price_toml, shape, typed
from services.cli.failure import CommandError
from services.cli.invocation import Invocation, command, new_app
from services.common.ids import uuid7
from services.common.money import to_money

app = new_app("What tokens cost, in USD per million, and what bounds a request.")

MAX_LIST_BYTES = 1_048_576
# Of what is wrong with a list so many lines are said.
MAX_SAID = 50

Price = Annotated[int, typer.Option(parser=typed.price, metavar="USD", help="A million prompt tokens.")]
Bound = Annotated[int | None, typer.Option(min=1)]
Allowance = Annotated[int | None, typer.Option(min=0)]


@command(app, "set")
def set_price(
    invocation: Invocation,
    model: Annotated[str, typer.Argument(help="The public model, such as acme/model-1.")],
    prompt: Price,
    completion: Annotated[int, typer.Option(parser=typed.price, metavar="USD", help="A million generated tokens.")],
    cached_prompt: Annotated[
        int | None,
        typer.Option(parser=typed.price, metavar="USD", help="A million cached prompt tokens; default: as --prompt."),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FROM:PROMPT:COMPLETION[:CACHED]",
            help="Other prices for prompts of FROM tokens or more; may be repeated.",
        ),
    ] = None,
    effective_from: Annotated[
        datetime | None, typer.Option(parser=typed.instant, metavar="T", help="From when; default: now.")
    ] = None,
    account: Annotated[str, typer.Option(metavar="ID", help="For this account only; default: for all.")] = "",
    max_output_tokens: Bound = None,
    default_output_tokens: Bound = None,
    tokens_per_byte: Bound = None,
    template_request_tokens: Allowance = None,
    template_message_tokens: Allowance = None,
    tools_request_tokens: Allowance = None,
    tools_message_tokens: Allowance = None,
    image_tokens: Allowance = None,
) -> None:
    """Add a price version. It never changes afterwards; bounds that are not given stay as they were."""
    item = price_pb2.SetPriceItem(
        operation_id=uuid7(),
        model=model,
        tiers=[_tier(0, prompt, completion, cached_prompt), *map(_parse_tier, tier or ())],
        account_id=account,
        bounds=price_pb2.ModelBounds(
            max_output_tokens=max_output_tokens,
            default_output_tokens=default_output_tokens,
            tokens_per_byte=tokens_per_byte,
            template_request_tokens=template_request_tokens,
            template_message_tokens=template_message_tokens,
            tools_request_tokens=tools_request_tokens,
            tools_message_tokens=tools_message_tokens,
            image_tokens=image_tokens,
        ),
    )
    if effective_from is not None:
        item.effective_from.FromDatetime(effective_from)
    with connection.billing(invocation.settings()) as billing:
        stub = price_pb2_grpc.PriceServiceStub(billing.channel)
        answer = billing.call(stub.SetPrices, price_pb2.SetPricesRequest(items=[item]))
    value = shape.price(connection.only(answer.results).price)
    invocation.show(value, lambda: output.details(_for_people(value)))


@command(app, "list")
def list_prices(
    invocation: Invocation,
    model: Annotated[str, typer.Option(help="Only this model's.")] = "",
    past: Annotated[bool, typer.Option("--past", help="Also versions that a later one has replaced.")] = False,
) -> None:
    """List price versions, by model and then newest first."""
    found = [shape.price(version) for version in _versions(invocation, model, past)]
    columns = ("model", ">prompt", ">cached_prompt", ">completion", "effective_from", "account_id", "version")
    invocation.show(
        found, lambda: output.table(columns, ([row[name.removeprefix(">")] for name in columns] for row in found))
    )


class Format(StrEnum):
    """File formats of a price list."""

    TOML = "toml"
    CSV = "csv"


FileFormat = Annotated[Format | None, typer.Option("--format", help="Default: as the file's name ends, else TOML.")]


@command(app, "export")
def export(
    invocation: Invocation,
    model: Annotated[str, typer.Option(help="Only this model's.")] = "",
    past: Annotated[bool, typer.Option("--past", help="Also versions that a later one has replaced.")] = False,
    file_format: FileFormat = None,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; default: standard output.")
    ] = None,
) -> None:
    """Write the price list as TOML or CSV, for `prices import`. With --json and no --output: one JSON list."""
    versions = _versions(invocation, model, past)
    if invocation.as_json and file is None:
        output.print_json([shape.price(version) for version in versions])
        return
    rows = [price_list.rows(version) for version in versions]
    if _format(file_format, file) is Format.CSV:
        text = price_csv.write(row for version in rows for row in version)
    else:
        text = price_toml.write(rows)
    if file is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        file.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None
    invocation.show({"file": str(file), "prices": len(rows)}, lambda: f"{len(rows)} prices written to {file}")


@command(app, "import")
def import_prices(
    invocation: Invocation,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A list as `prices export` writes it.")],
    file_format: FileFormat = None,
    effective_from: Annotated[
        datetime | None,
        typer.Option(parser=typed.instant, metavar="T", help="From when all of it applies, whatever it says; 0s: now."),
    ] = None,
) -> None:
    """Set all prices of a list, or none. Those that stand already as the list has them are left alone."""
    name = "standard input" if file == "-" else file
    text = _read(file, name)
    read = price_csv.read if _format(file_format, Path(file)) is Format.CSV else price_toml.read
    entries, wrong = read(text)
    wanted, more = price_list.wanted(entries, effective_from)
    _refuse(name, [*wrong, *more])
    models = {one.item.model for one in wanted}
    standing = _versions(invocation, next(iter(models)) if len(models) == 1 else "", True) if wanted else []
    by_scope = defaultdict(list)
    for version in standing:
        by_scope[version.model, version.account_id].append(version)
    new = [one for one in wanted if not price_list.stands(one, by_scope[one.item.model, one.item.account_id])]
    new = price_list.in_order(new, int(datetime.now(UTC).timestamp() * 1000))
    results: list[Any] = []
    if new:
        with connection.billing(invocation.settings()) as billing:
            stub = price_pb2_grpc.PriceServiceStub(billing.channel)
            request = price_pb2.SetPricesRequest(items=[one.item for one in new], all_or_none=True)
            results = list(billing.call(stub.SetPrices, request).results)
    _refuse(
        name,
        [
            price_list.WrongLine(one.line_of(result.field), f"{result.field}: {result.message}".removeprefix(": "))
            for one, result in zip(new, results, strict=True)
            if result.status not in (MutationStatus.MUTATION_STATUS_DONE, MutationStatus.MUTATION_STATUS_NOT_DONE)
        ],
    )
    value = {"set": [shape.price(result.price) for result in results], "unchanged": len(wanted) - len(new)}
    invocation.show(value, lambda: f"{len(results)} prices set, {value['unchanged']} stood already")


def _versions(invocation: Invocation, model: str, past: bool) -> list[price_pb2.PriceVersion]:
    with connection.billing(invocation.settings()) as billing:
        stub = price_pb2_grpc.PriceServiceStub(billing.channel)
        request = price_pb2.ListPricesRequest(model=model, include_past=past)
        return [price for page in connection.pages(billing, stub.ListPrices, request) for price in page.prices]


def _format(said: Format | None, file: Path | None) -> Format:
    if said is not None:
        return said
    return Format.CSV if file is not None and file.suffix.lower() == ".csv" else Format.TOML


def _read(file: str, name: str) -> str:
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(MAX_LIST_BYTES + 1)
        else:
            with Path(file).open("rb") as source:
                raw = source.read(MAX_LIST_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}") from None
    if len(raw) > MAX_LIST_BYTES:
        raise CommandError(f"{name} is larger than {MAX_LIST_BYTES} bytes")
    try:
        # Spreadsheets put a mark before the first character.
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 at byte {error.start}") from None


def _refuse(name: str, wrong: list[price_list.WrongLine]) -> None:
    if wrong:
        lines = [f"{name}:{one.line}: {one.message}" for one in sorted(wrong, key=lambda one: one.line)]
        rest = [f"and {len(lines) - MAX_SAID} more"] if len(lines) > MAX_SAID else []
        raise CommandError("\n".join([*lines[:MAX_SAID], *rest, "nothing was set"]))


def _for_people(value: dict[str, Any]) -> dict[str, Any]:
    """The first tier's prices stand at the top already; the others a line each, and only the bounds that are set."""
    bounds = (f"{name} {bound}" for name, bound in value["bounds"].items() if bound is not None)
    tiers = (
        f"from {tier['from_prompt_tokens']} prompt tokens: prompt {tier['prompt']}"
        + (f", cached prompt {tier['cached_prompt']}" if tier["cached_prompt"] is not None else "")
        + f", completion {tier['completion']}"
        for tier in value["tiers"][1:]
    )
    return value | {"tiers": "\n".join(tiers), "bounds": "\n".join(bounds)}


def _tier(from_tokens: int, prompt: int, completion: int, cached: int | None) -> price_pb2.PriceTier:
    made = price_pb2.PriceTier(from_prompt_tokens=from_tokens, prompt=to_money(prompt), completion=to_money(completion))
    if cached is not None:
        made.cached_prompt.CopyFrom(to_money(cached))
    return made


def _parse_tier(text: str) -> price_pb2.PriceTier:
    parts = text.split(":")
    if len(parts) not in (3, 4) or not (parts[0].isascii() and parts[0].isdigit()):
        raise typer.BadParameter(f"{text!r} is not FROM:PROMPT:COMPLETION or FROM:PROMPT:COMPLETION:CACHED")
    amounts = [typed.price(part) for part in parts[1:]]
    return _tier(int(parts[0]), amounts[0], amounts[1], amounts[2] if len(amounts) == 3 else None)
