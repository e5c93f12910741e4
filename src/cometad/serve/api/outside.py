"""What is outside: sources of readings with their rejected messages, and receivers of events with their deliveries."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from cometad.connect.contract import Lost
from cometad.connect.out import Rejected
from cometad.serve.api.guards import Refused, ServiceOf, answers, may
from cometad.serve.models import NAME, AsideMessages, ConnectionList, ConnectionState, DeliveryList, Retried
from cometad.serve.service import Service
from cometad.serve.sources import forget_rejected, rejected
from cometad.serve.stored_detectors import Missing

ConnectionName = Annotated[str, Path(pattern=NAME, description="Name of the connection.")]
DeliveryNumber = Annotated[int, Path(ge=1, le=2**31 - 1, description="Number of the delivery.")]
Receiving = Annotated[str, Query(pattern=NAME, description="Name of the receiver.")]

connections = APIRouter(prefix="/v1/connections", tags=["connections"])
deliveries = APIRouter(prefix="/v1/deliveries", tags=["deliveries"])


@connections.get("", responses=answers(), dependencies=[may("read")])
def list_connections(service: ServiceOf) -> ConnectionList:
    """All sources of `cometad.toml`, and whether they answer."""
    found = [vars(one) | {"streams": sorted(one.streams)} for one in service.connections.by_name.values()]
    return ConnectionList(connections=[ConnectionState(**one) for one in found])


@connections.get("/{name}/set-aside", responses=answers(404), dependencies=[may("read")])
def get_aside(
    name: ConnectionName, service: ServiceOf, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> AsideMessages:
    """Messages that could not be used, newest first; of each connection, the last 1,000 are kept."""
    _check(service, name)
    return AsideMessages(messages=rejected(service.store, name, limit))


@connections.delete("/{name}/set-aside", status_code=204, responses=answers(404), dependencies=[may("write")])
def delete_aside(name: ConnectionName, service: ServiceOf) -> None:
    """Delete the messages that were set aside."""
    _check(service, name)
    forget_rejected(service.store, name)


def _check(service: Service, name: str) -> None:
    if name not in service.connections.by_name:
        raise Missing(f"There is no connection {name!r}. Add it to cometad.toml as a table [[connect]].")


@deliveries.get("", responses=answers(), dependencies=[may("read")])
def list_deliveries(
    service: ServiceOf,
    state: Literal["waiting", "delivered", "undelivered"] | None = None,
    receiver: Annotated[str | None, Query(pattern=NAME, description="Name of the receiver.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> DeliveryList:
    """The receivers of events, and messages to them, newest first."""
    notifications = service.notifications
    return DeliveryList(
        receivers=notifications.receivers(), deliveries=notifications.outbox.listed(state, receiver, limit)
    )


@deliveries.post("/retry", responses=answers(404), dependencies=[may("write")])
def retry_receiver(receiver: Receiving, service: ServiceOf) -> Retried:
    """Try everything again, now, that a receiver did not get: what waits, and what was given up."""
    return Retried(count=service.notifications.retry_all(receiver))


@deliveries.post("/test", responses=answers(404, 502), dependencies=[may("write")])
async def send_example(receiver: Receiving, service: ServiceOf) -> Retried:
    """Send an example to a receiver, now; the answer says why if it does not take it."""
    try:
        await service.notifications.send_example(receiver)
    except (Lost, Rejected) as error:
        raise Refused(502, str(error)) from error
    return Retried(count=1)


@deliveries.post("/{delivery}/retry", responses=answers(404), dependencies=[may("write")])
def retry_delivery(delivery: DeliveryNumber, service: ServiceOf) -> Retried:
    """Try a message again, now; one that was delivered is not sent again."""
    return Retried(count=service.notifications.retry_one(delivery))
