"""Loads settings: the only module that reads the environment and users' files.

preset < user (``~/.config/refold/config.yaml``) < project (``refold.yaml``, else ``x-agent.yaml``) < environment
(``REFOLD_…``) < session < call. An invalid file or value raises ConfigError with file, line and name. Nothing is
written, and a missing file is not an error.

``read_block`` reads the blocks ``chat``, ``mcp`` and ``gateway``, which configure commands rather than compression.
Someone else may have written a project's file: what it may set is in ``trust``.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticKnownError

from refold.config.layers import OTHER_BLOCKS, Layer, LayerName, read_yaml, refuse_two, show, suggest
from refold.config.names import ALIASES
from refold.config.schema import CompressionConfig, advise, read_layer
from refold.config.trust import KEYS_FILE, RECORD, SECRET_FILE, UserFolder, find_fault, find_page_fault, may_project_set
from refold.errors import ConfigError, Sentence
from refold.ledger.place import LedgerPlace

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

BLOCK = "compression"
PROJECT_FILES = ("refold.yaml", "x-agent.yaml")
PREFIX = "REFOLD_"
BYTES_MAX = 1_000_000
# Variables of ours that do not configure compression.
NO_SETTINGS = frozenset({"REFOLD_DEBUG", "REFOLD_COMPACT_KEY", "REFOLD_TEST_POSTGRES"})
# The providers' own names, and ours for the key of the model that writes summaries.
MODEL_VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "REFOLD_COMPACT_KEY")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A settings file as it was read: the place of each setting, and a digest of the whole text."""

    path: Path
    place: str
    settings: Mapping[object, object]
    places: Mapping[str, str]
    digest: str

    @property
    def is_foreign(self) -> bool:
        """True if the file belongs to another program, and only the block ``compression`` is ours."""
        return self.path.name == "x-agent.yaml"


@dataclass(frozen=True, slots=True)
class GuardedSetting:
    """A setting in a project's file that takes effect only if the user trusts the file."""

    name: str
    value: object
    place: str

    @property
    def block(self) -> str:
        """The block of a command that it belongs to; empty for compression."""
        first = self.name.partition(".")[0]
        return first if first in OTHER_BLOCKS else ""


def load_config(
    workspace: str | Path | None = None,
    *,
    session: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    skips_refused: bool = False,
) -> CompressionConfig:
    """Return the settings of a workspace (by default the current folder), merged from all layers.

    A setting that the project's file may not have without the user's trust raises ConfigError. ``skips_refused``
    leaves it out instead, for commands that only show settings.
    """
    variables = os.environ if environ is None else environ
    user, project = read_file(user_file(variables)), read_file(project_file(workspace))
    layers = [_read_layer("user", user)] if user else []
    if project is not None:
        refused = [one for one in list_refused(project, workspace, environ) if not one.block]
        if refused and not skips_refused:
            raise refuse(project, refused)
        layers.append(_read_layer("project", project, {one.name for one in refused}))
    layers += _read_environment(variables)
    if session:
        layers.append(read_layer("session", session, "session"))
    if call:
        layers.append(read_layer("call", {key: value for key, value in call.items() if value is not None}, "call"))
    config = CompressionConfig(layers)
    embeddings = config.recall.embeddings
    key_name = "" if isinstance(embeddings, str) else embeddings.key_env
    return config.with_variables(read_model_variables(variables, key_name))


def read_compact_settings(call: Mapping[str, Any]) -> CompressionConfig:
    """Return the preset ``offload`` with the variables for compaction, in either spelling, and ``call``."""
    variables = {name: value for name, value in os.environ.items() if name in ALIASES or name in ALIASES.values()}
    layers = [*_read_environment(variables), read_layer("call", {"preset": "offload", **call}, "call")]
    return CompressionConfig(layers).with_variables(read_model_variables())


def list_guarded(file: SettingsFile, workspace: str | Path | None = None) -> list[GuardedSetting]:
    """Return the settings in a project's file that are the user's to decide, trusted or not."""
    layer = _read_layer("project", file)
    found = [GuardedSetting(name, value, layer.source(name).place) for name, value in layer.values.items()]
    for block in () if file.is_foreign else sorted(OTHER_BLOCKS):
        inner = file.settings.get(block)
        for key, value in inner.items() if isinstance(inner, dict) else ():
            found.append(GuardedSetting(f"{block}.{key}", value, file.places.get(f"{block}.{key}", file.place)))
    folder = Path.cwd() if workspace is None else Path(workspace)
    return [one for one in found if not may_project_set(one.name, one.value, folder)]


def list_refused(
    file: SettingsFile, workspace: str | Path | None = None, environ: Mapping[str, str] | None = None
) -> list[GuardedSetting]:
    """Return the settings in a project's file that have no effect, because the user does not trust it."""
    guarded = list_guarded(file, workspace)
    root = find_state_root(environ) if guarded else None
    if root is not None and UserFolder(root, file.path.parent).trusts(file.path.name, file.digest):
        return []
    return guarded


def trust_file(file: SettingsFile) -> None:
    """Let a project's file set what is the user's to decide, as long as its content stays the same."""
    find_user_folder(file.path.parent).trust(file.path.name, file.digest)


def refuse(file: SettingsFile, refused: Sequence[GuardedSetting]) -> ConfigError:
    """Return the error for settings that a project may not have without the user's trust."""
    return ConfigError(
        "{place}: {names} would let whoever wrote this file decide where keys and words go, or how well they are "
        "protected; if you trust it as it is, run '{command}', or set this in your own {user} or the environment",
        place=refused[0].place,
        names=", ".join(one.name[:60] for one in refused[:10]),
        command=name_trust(file.path.parent),
        user="~/.config/refold/config.yaml",
    )


def name_trust(folder: Path) -> str:
    """Return the command that trusts a folder."""
    is_here = folder.absolute() == Path.cwd()
    return "refold trust" if is_here else f"refold trust {shlex.quote(str(folder))}"


def check_record(workspace: str | Path, ledger: LedgerPlace | None = None) -> None:
    """Raise ConfigError if the record in a workspace may be somebody else's and the user has not adopted it."""
    folder = Path(workspace)
    fault = find_fault(folder, ledger)
    if fault is None:
        return
    root, found = find_state_root(), Path(str(fault.values["path"]))
    if root is None or not UserFolder(root, folder).has_adopted():
        raise ConfigError(
            "{fault}, so this record of conversations and keys may be somebody else's; delete {record}, or adopt it as "
            "your own with '{command}'",
            fault=fault,
            record=found.parent if found.parent == folder / RECORD else found,
            command=name_trust(folder),
        )


def may_inject_pages(workspace: str | Path) -> bool:
    """Return whether the daily pages in a workspace are the user's, or were adopted: others' words reach no prompt."""
    folder = Path(workspace)
    if find_page_fault(folder) is None:
        return True
    root = find_state_root()
    return root is not None and UserFolder(root, folder).has_adopted()


def find_user_folder(workspace: str | Path) -> UserFolder:
    """Return what refold keeps for this user about a workspace."""
    root = find_state_root()
    if root is None:
        raise ConfigError("there is no home folder to keep keys and addresses in; set HOME or XDG_STATE_HOME")
    return UserFolder(root, workspace)


def open_user_folder(workspace: str | Path) -> UserFolder:
    """Return what refold keeps for this user about a workspace, after moving there what earlier versions kept in it."""
    made = find_user_folder(workspace)
    for name in (KEYS_FILE, SECRET_FILE):
        if os.path.lexists(made.workspace / RECORD / name):
            check_record(workspace)
            made.take_over(name)
    return made


def find_state_root(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder for what refold remembers about this user's workspaces; None if there is no home."""
    variables = os.environ if environ is None else environ
    base = variables.get("XDG_STATE_HOME", "")
    if base and Path(base).is_absolute():
        return Path(base) / "refold"
    home = variables.get("HOME") or variables.get("USERPROFILE")
    if not home and environ is None:
        home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises an error where nobody has a home.
    if not home or not Path(home).is_absolute():
        return None
    if sys.platform == "darwin":
        return Path(home) / "Library" / "Application Support" / "refold"
    if sys.platform == "win32":
        return Path(variables.get("LOCALAPPDATA") or Path(home) / "AppData" / "Local") / "refold"
    return Path(home) / ".local" / "state" / "refold"


def copy_environment() -> dict[str, str]:
    """Return this process's environment, for a program that it runs."""
    return dict(os.environ)


def read_model_variables(environ: Mapping[str, str] | None = None, key_name: str = "") -> dict[str, str]:
    """Return the variables with addresses and keys of models; ``key_name`` is that of an embedding service."""
    variables = os.environ if environ is None else environ
    return {name: text for name in (*MODEL_VARIABLES, key_name) if (text := variables.get(name, "").strip())}


def is_debugging() -> bool:
    """Return whether ``REFOLD_DEBUG`` asks for tracebacks."""
    return os.environ.get("REFOLD_DEBUG", "").lower() not in {"", "0", "off", "false", "no"}


def user_file(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return where the user's own settings are, whether the file exists or not; None if there is no home."""
    variables = os.environ if environ is None else environ
    base = variables.get("XDG_CONFIG_HOME", "")
    if base and Path(base).is_absolute():
        return Path(base) / "refold" / "config.yaml"
    home = variables.get("HOME") or variables.get("USERPROFILE")
    return Path(home) / ".config" / "refold" / "config.yaml" if home else None


def project_file(workspace: str | Path | None = None) -> Path | None:
    """Return the nearest project file, from the workspace upwards to the root of its repository, or None."""
    folder = Path(workspace) if workspace is not None else Path.cwd()
    folder = folder.absolute()
    for candidate in (folder, *folder.parents):
        for name in PROJECT_FILES:
            # A folder or a dangling link counts, too: reading it raises an error.
            if os.path.lexists(candidate / name):
                return candidate / name
        if (candidate / ".git").exists():
            break
    return None


def _read_block(settings: Mapping[object, object], block: str, place: str) -> dict[object, object]:
    """Return a block of a file; raise ConfigError, which names the place, if it is not one."""
    inner = settings.get(block)
    if inner is not None and not isinstance(inner, dict):
        raise ConfigError(
            "{place}: {block} must be a block of settings, not {shown}",
            place=place,
            block=block,
            shown=show(inner),
        )
    return inner or {}


def _read_layer(layer: LayerName, file: SettingsFile, left_out: Collection[str] = ()) -> Layer:
    """Return the layer of a file: its ``compression`` block and, in our own files, the top level too."""
    block = _read_block(file.settings, BLOCK, file.places.get(BLOCK, file.place))
    within = {key.removeprefix(f"{BLOCK}."): at for key, at in file.places.items() if key.startswith(f"{BLOCK}.")}
    inner = read_layer(layer, block, file.place, within)
    # The rest of a foreign file belongs to another program.
    rest = () if file.is_foreign else file.settings.items()
    others = {key: value for key, value in rest if key != BLOCK and key not in OTHER_BLOCKS}
    outer = read_layer(layer, others, file.place, file.places)
    for name in outer.values.keys() & inner.values.keys():
        if outer.values[name] != inner.values[name]:
            raise ConfigError(
                "{place}: {name} is {shown}, but the {block} block says {shown2} ({place2}); keep one of them",
                place=outer.source(name).place,
                name=name,
                shown=show(outer.values[name]),
                block=BLOCK,
                shown2=show(inner.values[name]),
                place2=inner.source(name).place,
            )
    values = {name: value for name, value in {**outer.values, **inner.values}.items() if name not in left_out}
    return Layer(layer, values, file.place, within if file.is_foreign else {**file.places, **within})


def read_file(path: Path | None) -> SettingsFile | None:
    """Return a settings file; None if there is none."""
    if path is None or not os.path.lexists(path):
        return None
    place = _shorten(path)
    text = _read_text(path, place)
    settings, lines = read_yaml(text, place)
    places = {name: f"{place}:{line}" for name, line in lines.items()}
    return SettingsFile(path, place, settings, places, hashlib.sha256(text.encode()).hexdigest())


def _read_text(path: Path, place: str) -> str:
    try:
        # A link to /dev/null is an empty file; opening a pipe would wait forever.
        if not (path.is_file() or path.is_char_device()):
            what = "a folder" if path.is_dir() else "a dangling link" if path.is_symlink() else "not a file"
            raise ConfigError(
                "{place}: is {what}; a settings file is a text file of 'name: value' lines", place=place, what=what
            )
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError("{place}: cannot be read: {why}", place=place, why=error.strerror or error) from None
    if len(content) > BYTES_MAX:
        raise ConfigError(
            "{place}: larger than {bytes_max:,} bytes; that is not a settings file", place=place, bytes_max=BYTES_MAX
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("{place}: not UTF-8 text (byte {start})", place=place, start=error.start) from None


def _shorten(path: Path) -> str:
    """Return a path relative to the current folder, or to the home folder."""
    for base, prefix in ((Path.cwd(), ""), (Path(os.environ.get("HOME") or "/nonexistent"), "~/")):
        if path.is_relative_to(base):
            return f"{prefix}{path.relative_to(base)}"
    return str(path)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: ``fold.keep_turns`` is ``REFOLD_FOLD_KEEP_TURNS``."""
    return PREFIX + name.replace(".", "_").upper()


def known_variables() -> dict[str, str]:
    """Return every variable that is read, and the setting it sets."""
    known = CompressionConfig.known
    names = [*known.settings, *(f"{block}.{option}" for block, options in known.blocks.items() for option in options)]
    return {variable_of(name): name for name in sorted(names)} | {"REFOLD_AUTO": "auto_compress"}


def _read_environment(environ: Mapping[str, str]) -> list[Layer]:
    known = known_variables()
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    for variable in sorted(environ):
        name = known.get(ALIASES.get(variable, variable))
        text = environ[variable].strip()
        if name is None:
            _refuse_typo(variable, known)
        if name is None or not text:
            continue
        value = _read_variable(name, text, variable)
        if name in values and values[name] != value:
            raise refuse_two(places[name], values[name], variable, value)
        values[name] = value
        places[name] = variable
    return [Layer("environment", values, "", places)] if values else []


def _refuse_typo(variable: str, known: Mapping[str, str]) -> None:
    """Refuse a variable that looks like a misspelt one of ours; other programs' REFOLD_… variables are ignored."""
    if not variable.startswith(PREFIX) or variable in NO_SETTINGS:
        return
    hint = suggest(variable.removeprefix(PREFIX), [name.removeprefix(PREFIX) for name in known], near=0.85)
    if hint:
        raise ConfigError(
            "unknown environment variable '{variable}'{hint}",
            variable=variable,
            hint=hint.replace(chr(39), chr(39) + PREFIX, 1),
        )


def _read_variable(name: str, text: str, variable: str) -> object:
    """Return a variable's value: lists are separated by commas, tables are JSON, the rest stays as written."""
    if name == "ladder":
        return [stage.strip() for stage in text.split(",") if stage.strip()]
    if name in ("window", "recall.embeddings") and text.startswith("{"):
        import json

        try:
            return json.loads(text)
        except ValueError:
            raise ConfigError("{variable}: not a JSON table: {shown}", variable=variable, shown=show(text)) from None
    return text


def _join_text(value: object) -> object:
    """Accept a list of strings, joined by commas, and a whole number."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _refuse_switch(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticKnownError("float_type")
    return value


Text = Annotated[str, BeforeValidator(_join_text)]
Number = Annotated[float, BeforeValidator(_refuse_switch)]
Whole = Annotated[int, BeforeValidator(_refuse_switch)]


class CommandBlock(BaseModel):
    """A block: its settings, and the environment variables that set them.

    A setting in ``secret`` belongs in the environment: a file is easily committed. Errors never show its value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    variables: ClassVar[Mapping[str, str]]
    secret: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            raise self._refuse(str(wrong["loc"][0]), wrong) from None

    @classmethod
    def _refuse(cls, name: str, wrong: ErrorDetails) -> ConfigError:
        setting = f"{cls.name}.{name[:40]}"
        if wrong["type"] == "extra_forbidden":
            known = Sentence("; known settings: {names}", names=", ".join(cls.model_fields))
            hint = suggest(name, cls.model_fields) or known
            return ConfigError("{where}unknown setting '{name}'{hint}", where="", name=setting, hint=hint)
        value = "(hidden)" if name in cls.secret else show(wrong["input"])
        return ConfigError(
            "{where}{name} is {value}; {advice}", where="", name=setting, value=value, advice=advise(wrong)
        )


class ChatBlock(CommandBlock):
    """Settings of ``refold chat`` and of the page's chat."""

    name: ClassVar[str] = "chat"
    variables: ClassVar[Mapping[str, str]] = {
        f"REFOLD_CHAT_{name.upper()}": name for name in ("model", "base_url", "tools", "system", "summaries")
    }

    model: Text = ""
    base_url: Text = ""
    tools: Text = ""
    system: Text = ""
    summaries: Text = ""


class McpBlock(CommandBlock):
    """Settings of ``refold mcp``."""

    name: ClassVar[str] = "mcp"
    variables: ClassVar[Mapping[str, str]] = {"REFOLD_SESSION": "session"}

    session: Text = ""
    host: Text = "127.0.0.1"
    port: Whole = 7789


BlockType = TypeVar("BlockType", bound=CommandBlock)


def read_block(
    kind: type[BlockType],
    folder: str | Path | None,
    environ: Mapping[str, str] | None = None,
    *,
    skips_refused: bool = False,
) -> BlockType:
    """Return a block's settings in a workspace; precedence: user's file < project's file < environment."""
    taken = os.environ if environ is None else environ
    project = read_file(project_file(folder))
    refused = list_refused(project, folder, environ) if project is not None else []
    refused = [one for one in refused if one.block == kind.name]
    found: dict[str, tuple[object, str]] = {}
    for file in (read_file(user_file(taken)), project):
        if file is None or file.is_foreign:
            continue
        block = _read_block(file.settings, kind.name, file.places.get(kind.name, file.place))
        written = {str(key): (value, file.places.get(f"{kind.name}.{key}", file.place)) for key, value in block.items()}
        _check_block(kind, written)  # A typing error is reported before a lack of trust.
        if file is project and refused and not skips_refused:
            raise refuse(project, refused)
        left_out = {one.name for one in refused} if file is project else ()
        found |= {name: value for name, value in written.items() if f"{kind.name}.{name}" not in left_out}
    given = {name: (text, key) for key, name in kind.variables.items() if (text := taken.get(key, "").strip())}
    _check_block(kind, given)
    return kind(**{name: value for name, (value, _) in {**found, **given}.items()})


def _check_block(kind: type[CommandBlock], found: Mapping[str, tuple[object, str]]) -> None:
    """Raise ConfigError, with its place, for the first value that is invalid or does not belong in a file."""
    for name, (value, place) in found.items():
        if name in kind.secret and place not in kind.variables:
            raise ConfigError(
                "{place}: {name} is a secret and does not belong in a file; set {variable}",
                place=place,
                name=name,
                variable=next(key for key, setting in kind.variables.items() if setting == name),
            )
        try:
            kind(**{name: value})
        except ConfigError as error:
            raise ConfigError("{where}{fault}", where=f"{place}: ", fault=error.args[0]) from None
