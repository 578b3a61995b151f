"""What the shell offers when Tab is pressed: commands, presets, and the sessions of the workspace that is named."""

from pathlib import Path

from refold import ContextCompressionManager
from tests.rigs.cli import Shell
from tests.rigs.manager import chat


def press_tab(shell: Shell, line: str) -> list[str]:
    """The words that bash would offer at the end of a line."""
    ran = shell.refold(_REFOLD_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split(" ")) - 1))
    assert ran.err == ""
    return ran.text.split()


def store(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    with ContextCompressionManager(workspace_path=folder) as manager:
        for name in names:
            manager.append(name, chat(2))


def test_commands_and_presets_are_offered(shell: Shell) -> None:
    assert sorted(press_tab(shell, "refold re")) == ["recall", "redo", "replay"]
    assert press_tab(shell, "refold compact x --preset ha") == []
    assert press_tab(shell, "refold compact x --preset h") == ["hybrid"]


def test_sessions_of_the_workspace_are_offered(shell: Shell) -> None:
    assert press_tab(shell, "refold show --session ") == []
    assert not (shell.folder / ".refold").exists()
    store(shell.folder, "alpha", "alpine", "beta")
    store(shell.folder / "other", "elsewhere")
    assert sorted(press_tab(shell, "refold show --session al")) == ["alpha", "alpine"]
    assert press_tab(shell, "refold recall port --session be") == ["beta"]
    assert press_tab(shell, "refold show --workspace other --session ") == ["elsewhere"]
    assert press_tab(shell, "refold show --workspace absent --session ") == []
