"""The message that asks the router for an answer. Pure; the relay imports it."""

from speedinfer.router.v1.inference_pb2 import GenerateItem, Member, Requirement

from services.edge.admission import Admitted


def make(admitted: Admitted, remaining_s: float) -> GenerateItem:
    """The dispatch of an admitted request, with the bound on output that its hold pays for."""
    request, reservation, place, counted = admitted.request, admitted.reservation, admitted.place, admitted.counted
    return GenerateItem(
        context=admitted.arrival.context(remaining_s, 1),
        model=request.model,
        operation=request.operation,
        stream=request.stream,
        members=[Member(name=name, json=text) for name, text in request.members],
        output_limit=reservation.output_limit if reservation.HasField("output_limit") else None,
        output_limit_is_ours=request.output_limit is None,
        choices=request.choices,
        place_worker_id=place.worker_id if place is not None else "",
        place_request_id=place.request_id if place is not None else "",
        counted_prompt_tokens=counted.tokens if counted is not None else 0,
        counted_by=counted.worker_id if counted is not None else "",
        requirements=[Requirement(feature=need.feature, param=need.param) for need in request.needs],
    )
