"""Messages to receivers of events: which were delivered, which wait, which were given up."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from cometad.connect.contract import Lost
from cometad.connect.out import Rejected
from cometad.serve.api.common import Refused, ServiceOf, answers, may
from cometad.serve.models import NAME, DeliveryList, Retried

router = APIRouter(prefix="/v1/deliveries", tags=["deliveries"])

DeliveryNumber = Annotated[int, Path(ge=1, le=2**31 - 1, description="Number of the delivery.")]
Receiving = Annotated[str, Query(pattern=NAME, description="Name of the receiver.")]


@router.get("", responses=answers(), dependencies=[may("read")])
def list_deliveries(
    service: ServiceOf,
    state: Literal["waiting", "delivered", "undelivered"] | None = None,
    receiver: Annotated[str | None, Query(pattern=NAME, description="Name of the receiver.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> DeliveryList:
    """The receivers of events, and messages to them, newest first."""
    notifications = service.notifications
    return DeliveryList(
        receivers=notifications.receivers(), deliveries=notifications.deliveries(state, receiver, limit)
    )


@router.post("/retry", responses=answers(404), dependencies=[may("write")])
def retry_receiver(receiver: Receiving, service: ServiceOf) -> Retried:
    """Try everything again, now, that a receiver did not get: what waits, and what was given up."""
    return Retried(count=service.notifications.retry_all(receiver))


@router.post("/test", responses=answers(404, 502), dependencies=[may("write")])
async def send_example(receiver: Receiving, service: ServiceOf) -> Retried:
    """Send an example to a receiver, now; the answer says why if it does not take it."""
    try:
        await service.notifications.send_example(receiver)
    except (Lost, Rejected) as error:
        raise Refused(502, str(error)) from error
    return Retried(count=1)


@router.post("/{delivery}/retry", responses=answers(404), dependencies=[may("write")])
def retry_delivery(delivery: DeliveryNumber, service: ServiceOf) -> Retried:
    """Try a message again, now; one that was delivered is not sent again."""
    return Retried(count=service.notifications.retry_one(delivery))
