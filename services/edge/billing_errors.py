"""What it means that billing gives no answer. The billing client and its batches share it."""

import grpc

# CANCELLED is what a call gets that crosses with a server's end: nobody else cancels one of these.
AGAIN = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
# Statuses that say nothing of the request; every other one is an answer, and an error in one of the two services.
UNANSWERED = AGAIN | {
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.ABORTED,
}


class BillingUnavailable(Exception):
    """Billing gave no answer within the deadline; what was asked may or may not have been done."""


class NotSent(BillingUnavailable):
    """It was not even asked: nothing was done, and nothing will be."""


class QueueFull(NotSent):
    """Too many wait to ask."""
