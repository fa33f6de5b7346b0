"""The release workflow: what it builds, what it may do, and what stops it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from tests.support.actions import WORKFLOWS, evaluate, read
from tests.support.docs_commands import ROOT, TEXTS
from tests.support.messages import missing_facts

RELEASE = read(WORKFLOWS["release"].read_text(encoding="utf-8"))
BUILD, PUBLISH = RELEASE["jobs"]["build"], RELEASE["jobs"]["publish"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TAG = f"v{PROJECT['version']}"
(URL,) = PROJECT["urls"].values()


def check(tag: str, repository: str) -> tuple[int, str]:
    """Run the check of the workflow as its step does; return the exit code and stderr."""
    (step,) = (step["run"] for step in BUILD["steps"] if ".ci/" in step.get("run", ""))
    assert step.startswith("python ")
    server, _, name = repository.partition("//")[2].partition("/")
    command = ["bash", "-c", f"{sys.executable} {step.removeprefix('python ')}"]
    env = {"GITHUB_REF_NAME": tag, "GITHUB_SERVER_URL": f"https://{server}", "GITHUB_REPOSITORY": name}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_a_tag_of_the_version_in_the_repository_of_the_package_passes() -> None:
    assert check(TAG, URL) == (0, "")
    assert check(TAG, URL.upper().replace("HTTPS", "https")) == (0, "")


@pytest.mark.parametrize(
    ("tag", "repository", "expected"),
    [
        ("v9.9.9", URL, ["v9.9.9", PROJECT["version"], f"expected the tag {TAG}"]),
        (PROJECT["version"], URL, [f"expected the tag {TAG}"]),
        (TAG, "https://github.com/them/theirs", [URL, "expected this repository, https://github.com/"]),
        (TAG, f"{URL}2", ["expected this repository"]),
    ],
)
def test_another_tag_and_another_repository_are_refused(
    tag: str, repository: str, expected: list[str]
) -> None:
    code, err = check(tag, repository)
    assert (code, err.count("\n"), missing_facts(err, *expected)) == (1, 1, [])


def test_it_starts_with_a_tag_and_checks_before_it_builds() -> None:
    assert RELEASE[True] == {"push": {"tags": ["v*"]}}
    steps = [step.get("run", step.get("uses", "")) for step in BUILD["steps"]]
    order = ("check-release", "-m build", "twine check --", "check-wheel-contents dist", "upload-artifact")
    places = [next(i for i, step in enumerate(steps) if part in step) for part in order]
    assert places == sorted(places)
    assert "environment" not in BUILD
    assert "permissions" not in BUILD


def test_it_makes_the_checks_of_make_package() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^package:.*\n((?:\t.*\n)+)", makefile, re.M)
    made = re.sub(r"\$\(BIN\)/| --quiet --no-isolation --outdir build/dist|build/", "", recipe)
    wanted = [line.strip() for line in made.splitlines() if "rm -rf" not in line]
    steps = [step["run"] for step in BUILD["steps"] if "run" in step]
    assert steps[-len(wanted) :] == wanted


def test_only_the_job_that_publishes_gets_an_identity_and_it_runs_no_code_of_ours() -> None:
    for value, publishes in (("true", True), ("", False), (None, False), ("false", False)):
        assert evaluate(f"${{{{ {PUBLISH['if']} }}}}", {"vars.PUBLISH": value}) is publishes
    assert PUBLISH["permissions"] == {"id-token": "write"}
    assert (PUBLISH["needs"], PUBLISH["environment"]) == ("build", "pypi")
    steps: list[dict[str, Any]] = PUBLISH["steps"]
    used = [step["uses"].partition("@")[0] for step in steps]
    assert used == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
    (uploaded,) = (step["with"] for step in BUILD["steps"] if "upload-artifact" in step.get("uses", ""))
    assert {name: uploaded[name] for name in ("name", "path")} == steps[0]["with"]
    assert "secrets" not in WORKFLOWS["release"].read_text(encoding="utf-8")
    text = TEXTS["CONTRIBUTING.md"].partition("## Releases")[2]
    assert missing_facts(text, "[project.urls]", "`PUBLISH`", "`pypi`", "release.yml", URL) == []
