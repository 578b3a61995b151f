"""All adapters: which session a request belongs to, the context tools, and methods that send what fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.errors import ConfigError
from refold.formats import ModelReply
from refold.integrations import Adapter, MethodAdapter, needs


class NamedAdapter(Adapter):
    def find_name(self, request: Mapping[str, Any]) -> str | None:
        return request.get("thread")


class Model:
    """A model of some framework."""

    def ask(self, question: str, history: list[Any], *, loud: bool = False) -> str:
        self.seen = history
        return f"{len(history)} messages{'!' if loud else ''}"


class ModelAdapter(MethodAdapter):
    argument = "history"
    methods: ClassVar = {"ask": "call", "ask_later": "call_async"}

    def read_request(self, owner: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().read_request(owner, options), "system": options["question"]}

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply]:
        return lambda answer: ModelReply([{"role": "assistant", "content": answer}])


def test_a_request_names_its_session_and_without_one_its_history_does(tmp_path: Path) -> None:
    adapter = NamedAdapter(workspace=tmp_path)
    assert adapter.session_for({"thread": "t1"}).id == "t1"
    for ask in (lambda: adapter.session_for({}).id, lambda: adapter.refold.id):
        with pytest.raises(ConfigError, match="pass session="):
            ask()
    adapter.session_for({}).prepare([{"role": "user", "content": "Hi."}])
    assert adapter.session_for({}).id == adapter.refold.id
    assert adapter.refold.messages() == [{"role": "user", "content": "Hi."}]
    named = NamedAdapter("mine", manager=adapter.manager)
    assert (named.refold.id, named.session_for({"thread": "t1"}).id) == ("mine", "mine")
    adapter.manager.close()


def test_a_method_sends_what_fits_wherever_its_messages_are_and_the_answer_is_stored(tmp_path: Path) -> None:
    adapter = ModelAdapter("s1", workspace=tmp_path, window=3_000)
    plain = Model()
    model = adapter.fit_methods(plain)
    history = [
        {"role": role, "content": f"{role} {n} " + "word " * 100} for n in range(40) for role in ("user", "assistant")
    ]
    history.append({"role": "user", "content": "And now?"})
    answer = model.ask("Why?", history, loud=True)
    assert answer == f"{len(model.seen)} messages!"
    assert len(model.seen) < len(history)
    assert [m["content"] for m in model.refold.messages()[-2:]] == ["And now?", answer]
    assert model.ask("Why?", history=history, unknown=None).endswith("messages")
    with pytest.raises(TypeError, match="unknown"):
        model.ask("Why?", history=history, unknown=1)
    model.ask("Why?", "And then?")
    assert model.seen[-1] == {"role": "user", "content": "And then?"}
    assert isinstance(model, Model)
    assert not hasattr(plain, "refold")
    with pytest.raises(ConfigError, match="object cannot be wrapped: it has no method 'ask'"):
        adapter.fit_methods(object())
    adapter.manager.close()


def test_an_adapter_that_lacks_a_reader_says_so_when_it_is_made(tmp_path: Path) -> None:
    class Half(MethodAdapter):
        methods: ClassVar = {"ask": "call"}

    with pytest.raises(TypeError, match="watch"):
        Half("s1", workspace=tmp_path)  # type: ignore[abstract]


class Framework:
    """A framework's class for hooks, in a version that knows one of them."""

    def before_model(self) -> None: ...


class HookedAdapter(Adapter, Framework):
    __module__ = "refold.integrations.hooked"

    def before_model(self) -> None: ...

    def after_model(self) -> None: ...


def test_a_hook_that_the_framework_does_not_have_is_named_when_the_adapter_is_made(tmp_path: Path) -> None:
    with needs("HookedAdapter", "framework 2.1"):
        pass
    with pytest.raises(
        ConfigError, match=r"^HookedAdapter needs framework 2\.1 or newer: this one has no after_model$"
    ):
        HookedAdapter("s1", workspace=tmp_path)
    assert not list(tmp_path.iterdir())
    newer = type("Newer", (HookedAdapter, type("Framework", (), {"after_model": lambda _: None})), {})
    newer("s1", workspace=tmp_path).manager.close()


def test_a_framework_that_is_absent_or_too_old_is_named_with_its_version() -> None:
    with (
        pytest.raises(
            ConfigError,
            match=r"needs framework 2\.1 or newer: pip install .refold\[framework\]. \(.*no_such_fr",
        ),
        needs("MyAdapter", "framework 2.1"),
    ):
        import no_such_framework  # type: ignore[import-not-found]  # noqa: F401
