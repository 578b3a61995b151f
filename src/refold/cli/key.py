"""``refold key``: who may use the gateway. Only hashes of keys are stored; a key is shown once, when it is made."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from refold.cli.options import AsJson, Workspace


def add(tenant: str, workspace: str, *, as_json: bool) -> None:
    """Make a key for a tenant and show it."""
    from refold.cli.reading import write_json
    from refold.server.auth import KeyRing

    stored, key = KeyRing(workspace).add(tenant)
    if as_json:
        write_json({"id": stored.id, "tenant": stored.tenant, "key": key})
        return
    typer.echo(f"key {stored.id} of {stored.tenant}; it is shown this once:", err=True)
    typer.echo(key)


def show(workspace: str, *, as_json: bool) -> None:
    """List the keys that work."""
    from refold.cli.reading import write_json
    from refold.server.auth import KeyRing

    keys = KeyRing(workspace).list_keys()
    if as_json:
        rows = [{name: value for name, value in asdict(one).items() if name != "hash"} for one in keys]
        write_json(rows)
        return
    if not keys:
        typer.echo("there are no keys; make one with: refold key add TENANT", err=True)
    for one in keys:
        made = datetime.fromtimestamp(one.created_at, UTC).strftime("%Y-%m-%d %H:%M")
        typer.echo(f"{one.id}  {made}  {one.tenant}")


def revoke(name: str, workspace: str, *, as_json: bool) -> None:
    """Revoke a key by its id, or all keys of a tenant."""
    from refold.cli.reading import write_json
    from refold.server.auth import KeyRing

    revoked = KeyRing(workspace).revoke(name)
    if as_json:
        write_json([{"id": one.id, "tenant": one.tenant} for one in revoked])
        return
    for one in revoked:
        typer.echo(f"revoked {one.id} of {one.tenant}", err=True)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    keys = typer.Typer(help="Say who may use the gateway: add, list, revoke keys.", no_args_is_help=True)
    app.add_typer(keys, name="key")

    @keys.command("add")
    def key_add(
        tenant: Annotated[
            str, typer.Argument(metavar="TENANT", help="Whose key it is; a tenant sees its own sessions only.")
        ],
        workspace: Workspace = ".",
        as_json: AsJson = False,
    ) -> None:
        """Make a key. It is shown once; only its hash is stored."""
        add(tenant, workspace, as_json=as_json)

    @keys.command("list")
    def key_list(workspace: Workspace = ".", as_json: AsJson = False) -> None:
        """List the keys that work."""
        show(workspace, as_json=as_json)

    @keys.command("revoke")
    def key_revoke(
        name: Annotated[str, typer.Argument(metavar="KEY|TENANT", help="A key's id, or a tenant for all its keys.")],
        workspace: Workspace = ".",
        as_json: AsJson = False,
    ) -> None:
        """Revoke a key; it stops working at once."""
        revoke(name, workspace, as_json=as_json)
