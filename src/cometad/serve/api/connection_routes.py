"""Sources of readings, and what of theirs could not be used."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query

from cometad.serve.api.common import ServiceOf, answers, may
from cometad.serve.models import NAME, AsideMessage, AsideMessages, ConnectionList, ConnectionState
from cometad.serve.service import Service
from cometad.serve.sources import forget_rejected, rejected
from cometad.serve.stored_detectors import Missing

router = APIRouter(prefix="/v1/connections", tags=["connections"])
ConnectionName = Annotated[str, Path(pattern=NAME, description="Name of the connection.")]


@router.get("", responses=answers(), dependencies=[may("read")])
def list_connections(service: ServiceOf) -> ConnectionList:
    """All sources of `cometad.toml`, and whether they answer."""
    found = [asdict(one) | {"streams": sorted(one.streams)} for one in service.connections.by_name.values()]
    return ConnectionList(connections=[ConnectionState(**one) for one in found])


@router.get("/{name}/set-aside", responses=answers(404), dependencies=[may("read")])
def get_aside(
    name: ConnectionName, service: ServiceOf, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> AsideMessages:
    """Messages that could not be used, newest first; of each connection, the last 1,000 are kept."""
    _check(service, name)
    rows = rejected(service.store, name, limit)
    return AsideMessages(
        messages=[
            AsideMessage(
                time=row.at,
                stream=row.stream,
                where=row.place,
                content=row.content.decode("utf-8", "backslashreplace"),
                reason=row.reason,
            )
            for row in rows
        ]
    )


@router.delete("/{name}/set-aside", status_code=204, responses=answers(404), dependencies=[may("write")])
def delete_aside(name: ConnectionName, service: ServiceOf) -> None:
    """Delete the messages that were set aside."""
    _check(service, name)
    forget_rejected(service.store, name)


def _check(service: Service, name: str) -> None:
    if name not in service.connections.by_name:
        raise Missing(f"There is no connection {name!r}. Add it to cometad.toml as a table [[connect]].")
