"""`speedinfer prices`: what tokens of a model cost, and what bounds a request. Typed as USD per million tokens."""

from datetime import datetime
from typing import Annotated, Any

import typer
from speedinfer.billing.v1 import price_pb2, price_pb2_grpc

from services.cli import connection, output, shape, typed
from services.cli.invocation import Invocation, command, new_app
from services.common.ids import uuid7
from services.common.money import to_money

app = new_app("What tokens cost, in USD per million, and what bounds a request.")

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
    with connection.billing(invocation.settings()) as billing:
        stub = price_pb2_grpc.PriceServiceStub(billing.channel)
        request = price_pb2.ListPricesRequest(model=model, include_past=past)
        found = [
            shape.price(price) for page in connection.pages(billing, stub.ListPrices, request) for price in page.prices
        ]
    columns = ("model", ">prompt", ">cached_prompt", ">completion", "effective_from", "account_id", "version")
    invocation.show(
        found, lambda: output.table(columns, ([row[name.removeprefix(">")] for name in columns] for row in found))
    )


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
