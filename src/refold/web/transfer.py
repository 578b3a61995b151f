"""Files in and out: sessions of other programs that are dropped on the page, and a session as a file to save.

Every imported conversation is played through the manager request by request, at the times it was recorded, so it opens
with its folds, its timeline and its bill. No model is called and nothing leaves the machine. We count the usage
ourselves. The whole bill adds the cost of reading folded text again, computed as in ``refold replay``. The saved file
is what ``refold export`` writes.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote
from weakref import WeakKeyDictionary

from fastapi import Request, Response
from starlette.datastructures import UploadFile

from refold.budget import Tariff
from refold.conversation.reason import Language
from refold.errors import FormatError, RefoldError
from refold.ledger.codec import dump_json
from refold.ledger.records import SESSION_ID_MAX
from refold.manager.recorded import play_recorded
from refold.manager.status import export_session
from refold.manager.usage import Bill
from refold.readers.file import list_files, read_files
from refold.readers.session import Session, find_title
from refold.replay.run import ReplayJob
from refold.sentences import describe_error
from refold.server.api.interface import Access
from refold.server.auth import make_id
from refold.tokens import model_info
from refold.web.visit import DataSource, find_language

if TYPE_CHECKING:
    from refold.server.app import Application


log = logging.getLogger("refold.web")
IMPORT_PATH = "/import"
SESSIONS_MAX = 30
FILES_MAX = 400
BYTES_MAX = 256_000_000
UPLOAD_S_MAX = 600.0
_MILLION = 1_000_000
EXPORT_PATH = "/export"


@dataclass(slots=True)
class FileImport:
    """A running import, or the last one. ``reread`` is the cost of reading folded text again, in dollars."""

    language: Language = "en"
    done: int = 0
    total: int = 0
    title: str = ""
    is_running: bool = True
    names: list[str] = field(default_factory=list)
    bill: Bill = Bill()
    reread: float = 0.0
    problems: list[str] = field(default_factory=list)
    problem: str = ""
    task: asyncio.Task[None] | None = field(default=None, repr=False)


_running: WeakKeyDictionary[Application, dict[str, FileImport]] = WeakKeyDictionary()


def find_import(application: Application, tenant: str) -> FileImport | None:
    """Return the running or last import of a tenant, if there is one."""
    return _running.get(application, {}).get(tenant)


async def take_files(request: Request) -> Response:
    """Store the uploaded files in a temporary folder and start to import them; one import of a tenant at a time."""
    source = DataSource(request.scope["refold.application"], request.scope["refold.caller"])
    source.check()
    known, tenant = _running.setdefault(source.application, {}), source.access.tenant
    before = known.get(tenant)
    if before is not None and before.is_running:
        return Response("an import is already running", 409)
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > BYTES_MAX + 1_000_000:
        return Response("too large", 413)
    made = known[tenant] = FileImport(find_language(request))  # Before the first await: the upload takes its time.
    folder = Path(tempfile.mkdtemp(prefix="refold-import-"))
    try:
        async with asyncio.timeout(UPLOAD_S_MAX), request.form(max_files=FILES_MAX, max_fields=10) as form:
            uploaded = [one for one in form.getlist("files") if isinstance(one, UploadFile) and one.filename]
            await asyncio.to_thread(_store_files, uploaded, folder)
    except BaseException as error:
        known.pop(tenant) if before is None else known.update({tenant: before})
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, TimeoutError):
            return Response("the upload took too long", 408)
        raise
    made.task = asyncio.create_task(_run(source, made, folder), name="refold-import")
    return Response(status_code=204)


def _store_files(files: Sequence[UploadFile], folder: Path) -> None:
    """Copy uploaded files, which are on the disk if they are large, each into a folder of its own."""
    for number, file in enumerate(files):
        place = folder / f"{number:04}" / re.sub(r"[^A-Za-z0-9._-]", "-", Path(file.filename or "").name)[-120:]
        place.parent.mkdir()
        with place.open("wb") as target:
            shutil.copyfileobj(file.file, target, 1_000_000)


async def _run(source: DataSource, job: FileImport, folder: Path) -> None:
    try:
        await source.run(import_files, folder, job)
    except RefoldError as error:
        job.problem = describe_error(error, job.language)[:500].replace(f"{folder}/", "")
    except Exception as error:
        log.exception("an import failed")
        job.problem = type(error).__name__
    finally:
        job.is_running = False
        await asyncio.to_thread(shutil.rmtree, folder, True)


def import_files(access: Access, folder: Path, job: FileImport) -> None:
    """Import the newest sessions of the files in a folder."""
    found: list[Session] = []
    for reading in read_files(list_files([str(folder)])):
        job.problems += [_name_file(reading.path, one.why) for one in reading.broken[:3]]
        found += reading.sessions
    found.sort(key=lambda one: one.times[-1] if one.times else 0.0)
    chosen = found[-SESSIONS_MAX:]
    if not chosen:
        raise FormatError(job.problems[0] if job.problems else "no conversation was found in these files")
    job.total = len(chosen)
    for number, session in enumerate(chosen):
        job.done, job.title = number, find_title(session)
        try:
            name = play_session(access, session)
        except RefoldError as error:
            job.problems.append(_name_file(session.source, describe_error(error, job.language)))
            continue
        job.names.append(name)
        job.bill += access.manager.figures(make_id(access.tenant, name)).bill
        job.reread += price_rereads(session)
    if not job.names:
        raise FormatError(job.problems[0] if job.problems else "no conversation could be imported")


def _name_file(path: str, why: str) -> str:
    """Return a file's problem under the file's own name; ``path`` is in our temporary folder."""
    name = Path(path).name
    problem = why.replace(path, name)
    return problem if name in problem else f"{name}: {problem}"


def play_session(access: Access, session: Session) -> str:
    """Store a recorded session as if it had been sent through refold, or what was added to it; return its name."""
    name = _name_session(session)
    session_id = make_id(access.tenant, name)
    if len(session_id) > SESSION_ID_MAX:
        raise FormatError("the name {name!r} is too long", name=name[:60])
    if access.tenant:
        access.application.preparer.storage.check(access.tenant, len(dump_json(list(session.messages))))
    play_recorded(access.manager, session_id, session)
    return name


def price_rereads(session: Session) -> float:
    """Return the cost of reading folded text of a session again, in dollars; 0 if no price is known."""
    info = model_info(session.model or None)
    if info.prices is None:
        return 0.0
    record = ReplayJob(session, "default").run()
    return record.charge_rereads(Tariff.of_model(info)) * info.prices.input / _MILLION


def _name_session(session: Session) -> str:
    name = session.id if session.id else Path(session.source).stem
    cleaned = name.encode("utf-8", "replace").decode()
    for ending in (".jsonl", ".json"):
        cleaned = cleaned.replace(ending, "")
    return cleaned.removesuffix(":1")[:120] or "imported"


async def send_export(request: Request, name: str = "") -> Response:
    """Send a session as a file; the address is protected like every page."""
    source = DataSource(request.scope["refold.application"], request.scope["refold.caller"])
    try:
        content = await source.run(
            lambda access: dump_json(export_session(access.ledger, access.need(name).id)) + b"\n"
        )
    except RefoldError as error:
        return Response(describe_error(error, find_language(request)), error.http_status, media_type="text/plain")
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:80] or "session"
    disposition = f"attachment; filename=\"{safe}.json\"; filename*=UTF-8''{quote(name[:80], safe='')}.json"
    return Response(
        content,
        media_type="application/json",
        headers={"content-disposition": disposition, "cache-control": "no-store"},
    )
