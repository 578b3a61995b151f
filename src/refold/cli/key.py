"""``refold key``: the keys of the gateway. Only hashes are stored; a key is printed once, when it is created."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from refold.cli.app import PlainTyper, app
from refold.cli.input import AsJson, Workspace
from refold.cli.output import write_json
from refold.cli.words import tr

keys = PlainTyper(help="Manage the keys of the gateway: add, list, revoke.")
app.add_typer(keys, name="key")


@keys.command("add")
def add_key(
    tenant: Annotated[
        str, typer.Argument(metavar="TENANT", help="Owner of the key; a tenant sees only its own sessions.")
    ],
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Create a key. It is printed once; only its hash is stored."""
    from refold.server.auth import KeyRing

    stored, key = KeyRing(workspace).add(tenant)
    if as_json:
        write_json({"id": stored.id, "tenant": stored.tenant, "key": key})
        return
    typer.echo(tr("key {id} of {tenant}; it is not shown again:", id=stored.id, tenant=stored.tenant), err=True)
    typer.echo(key)


@keys.command("list")
def list_keys(workspace: Workspace = "", as_json: AsJson = False) -> None:
    """List the valid keys."""
    from refold.server.auth import KeyRing

    found = KeyRing(workspace).list_keys()
    if as_json:
        write_json([{name: value for name, value in asdict(one).items() if name != "hash"} for one in found])
        return
    if not found:
        typer.echo(tr("there are no keys; create one with: refold key add TENANT"), err=True)
    for one in found:
        made = datetime.fromtimestamp(one.created_at, UTC).strftime("%Y-%m-%d %H:%M")
        typer.echo(f"{one.id}  {made}  {one.tenant}")


@keys.command("revoke")
def revoke_key(
    name: Annotated[str, typer.Argument(metavar="KEY|TENANT", help="Id of a key, or a tenant for all its keys.")],
    workspace: Workspace = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a key. It stops working at once."""
    from refold.server.auth import KeyRing

    revoked = KeyRing(workspace).revoke(name)
    if as_json:
        write_json([{"id": one.id, "tenant": one.tenant} for one in revoked])
        return
    for one in revoked:
        typer.echo(tr("revoked {id} of {tenant}", id=one.id, tenant=one.tenant), err=True)
