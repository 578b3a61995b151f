"""What operators start: the image's steps name files that exist, manifests keep their promises, the script serves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rigs.web import wait_ready


@pytest.fixture
def chart(project_root: Path) -> Path:
    return project_root / "deploy" / "helm" / "refold"


def read_steps(project_root: Path) -> list[tuple[str, str]]:
    text = (project_root / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def test_the_image_copies_what_exists_installs_by_hash_and_runs_without_root(project_root: Path) -> None:
    steps = read_steps(project_root)
    ignored = (project_root / ".dockerignore").read_text().splitlines()
    for kind, what in steps:
        if kind == "COPY" and "--from" not in what:
            *sources, _ = [word for word in what.split() if not word.startswith("--")]
            for source in sources:
                assert (project_root / source).exists(), source
                assert f"!{source}" in ignored or f"!{source.split('/')[0]}" in ignored, source
    installs = [what for kind, what in steps if kind == "RUN" and "pip install" in what]
    assert installs
    assert all("--no-deps" in one for one in installs), "nothing is resolved"
    assert "--require-hashes" in installs[0]
    assert ("USER", "10001") in steps
    assert any(kind == "HEALTHCHECK" and "/readyz" in what for kind, what in steps)


def test_compose_has_health_checks_volumes_and_secrets_and_no_key(project_root: Path) -> None:
    text = (project_root / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    gateway, db = services["gateway"], services["db"]
    assert gateway["depends_on"]["db"]["condition"] == "service_healthy"
    assert "healthcheck" in db
    assert gateway["read_only"]
    assert gateway["cap_drop"] == ["ALL"]
    assert set(gateway["secrets"]) == set(yaml.safe_load(text)["secrets"])
    assert gateway["ports"] == ["127.0.0.1:7788:7788"], "only this machine, until there is TLS before it"
    assert not re.search(r"sk-|PASSWORD: ", text)


def render(template: str, values: dict[str, Any]) -> str:
    """Fill in a template that only reads values, as the chart's do."""

    def fill(found: re.Match[str]) -> str:
        path, _, function = found[1].strip().removeprefix("toJson ").partition(" | ")
        value: Any = {"Release": {"Name": "refold"}, "Values": values}
        for name in path.lstrip(".").split("."):
            value = value[name]
        if function == "quote":
            return f'"{value}"'
        return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").strip()

    return re.sub(r"\{\{(.*?)\}\}", fill, template)


def test_the_chart_renders_to_manifests_without_root_rights(chart: Path) -> None:
    values = yaml.safe_load((chart / "values.yaml").read_text())
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["apiVersion"] == "v2"
    template = (chart / "templates" / "gateway.yaml").read_text()
    made = {one["kind"]: one for one in yaml.safe_load_all(render(template, values))}
    pod = made["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["image"] == "refold:latest"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    mounted = {one["name"] for one in container["volumeMounts"]}
    claimed = {one["metadata"]["name"] for one in made["StatefulSet"]["spec"]["volumeClaimTemplates"]}
    assert mounted == {one["name"] for one in pod["volumes"]} | claimed
    assert made["Service"]["spec"]["ports"][0]["port"] == 7788


@pytest.mark.slow
def test_the_start_script_reads_secrets_from_files_and_serves(tmp_path: Path, project_root: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "openai_key").write_text("sk-of-the-team")
    bin_folder = Path(sys.executable).parent
    kept = {name: one for name, one in os.environ.items() if not name.startswith(("REFOLD_", "OPENAI_", "ANTHROPIC_"))}
    environment = {**kept, "PATH": f"{bin_folder}:{kept['PATH']}", "HOME": str(tmp_path), "SECRETS_DIR": str(secrets)}
    script = str(project_root / "deploy" / "start.sh")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [script, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    refused = run("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it is refused
    assert refused.returncode == 3, "without a key nothing is opened to other machines"
    assert run("key", "add", "alice").returncode == 0
    command = [script, "serve", "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        told = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", told)):
            line = process.stderr.readline()
            assert line, told
            told += line
        wait_ready(found[0])
        with urllib.request.urlopen(f"{found[0]}/livez", timeout=10) as answer:
            assert answer.status == 200
        assert "sk-of-the-team" not in told
        variables = Path(f"/proc/{process.pid}/environ").read_text().split("\0")
        assert "REFOLD_OPENAI_KEY=sk-of-the-team" in variables
    finally:
        process.terminate()
        process.communicate(timeout=60)
