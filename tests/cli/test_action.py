"""The composite action and the workflows: what they ask for, what their shell hands to bench, pip and gh."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.actions import ACTION, PINNED, WORKFLOWS, Runner, evaluate, read
from tests.support.docs_commands import ROOT, TEXTS, Command, blocks, commands, parsed
from tests.support.messages import missing_facts

TEXT = ACTION.read_text()
FACTS = read(TEXT)
STEPS = FACTS["runs"]["steps"]
SCRIPTS = {step["name"]: step["run"] for step in STEPS if "run" in step}
FILES = ["html=bench-check/report.html", "junit=bench-check/junit.xml", "json=bench-check/verdict.json"]
WRITTEN = [f"--{file}" for file in [*FILES, "summary=bench-check/summary.md"]]
DEFAULT = ["--reference=results/reference", "--workers=2"]


def workflow(name: str) -> dict[Any, Any]:
    return read(WORKFLOWS[name].read_text())


def steps_of(facts: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in facts["jobs"].values() for step in job.get("steps", ())]


def checked(runner: Runner) -> list[str]:
    """Return the arguments of the only ``bench check``."""
    (words,) = (words for words in runner.called("bench") if words[0] == "check")
    return words[1:]


def test_every_input_is_described_has_a_default_and_is_used() -> None:
    inputs = FACTS["inputs"]
    for facts in inputs.values():
        assert set(facts) == {"description", "default"}
        assert facts["description"].endswith(".")
        assert isinstance(facts["default"], str)
    assert set(re.findall(r"inputs\.([\w-]+)", TEXT)) == set(inputs)
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| (.*) \|$", TEXTS["gate-in-a-build.md"], re.M)
    assert [row[0] for row in rows] == list(inputs)
    for name, default, about in rows:
        assert about == inputs[name]["description"].removesuffix(".")
        value = inputs[name]["default"]
        assert default.strip() == ("the job's" if name == "token" else value and f"`{value}`")


def test_no_expression_stands_in_a_script() -> None:
    texts = [TEXT, *(path.read_text() for path in WORKFLOWS.values())]
    texts += [content for language, content in blocks(TEXTS["gate-in-a-build.md"]) if language == "yaml"]
    for text in texts:
        facts = read(text)
        found = facts["runs"]["steps"] if "runs" in facts else steps_of(facts)
        assert all("${{" not in step.get("run", "") for step in found)
    for step in STEPS:
        assert ("run" in step) == (step.get("shell") == "bash")


def test_other_actions_are_pinned_and_the_same_everywhere() -> None:
    used = {step["uses"] for step in STEPS if "uses" in step}
    for name in WORKFLOWS:
        used |= {step["uses"] for step in steps_of(workflow(name)) if "uses" in step} - {"./"}
    assert all(PINNED.fullmatch(use) for use in used)
    versions = {(re.split("[/@]", use)[1], use.partition("@")[2]) for use in used}
    assert len(versions) == len({name for name, _ in versions}) == 9


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_shell_can_read_every_script(name: str) -> None:
    command = ["bash", "-n", "-c", SCRIPTS[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


TEXT_INPUTS = (
    *("reference", "methods", "plugin", "encoder", "name"),
    *("results", "campaign", "data", "tolerance", "workers"),
)
HOSTILE = "$(touch pwned)`touch pwned`\"; touch pwned; '\\"


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({}, DEFAULT),
        ({"data": "data"}, [DEFAULT[0], "--data=data", DEFAULT[1]]),
        ({"reference": "", "workers": ""}, []),
        ({"reference": "origin/main", "strict": "true", "tolerance": "0.2", "workers": "4"},
         ["--reference=origin/main", "--tolerance=0.2", "--workers=4", "--strict"]),
        ({"strict": "true", "allow-versions": "true"}, [*DEFAULT, "--strict", "--allow-versions"]),
        ({"plugin": "a b.py\n\nmine.py", "methods": "untrained,mine[k=1]"},
         ["--reference=results/reference", "--methods=untrained,mine[k=1]", "--plugin=a b.py",
          "--plugin=mine.py", "--workers=2"]),
        ({"encoder": "my model", "name": "mine", "data": "my data"},
         ["--reference=results/reference", "--encoder=my model", "--name=mine", "--data=my data",
          "--workers=2"]),
        ({"results": "results", "campaign": "nightly run"},
         ["--reference=results/reference", "--results=results", "--campaign=nightly run", "--workers=2"]),
        ({"fetch": "sts7"}, ["--reference=results/reference", "--data=data", "--workers=2"]),
        ({"reference": "--update", "methods": "-h"},
         ["--reference=--update", "--methods=-h", "--workers=2"]),
        (dict.fromkeys(TEXT_INPUTS, HOSTILE), [f"--{name}={HOSTILE}" for name in TEXT_INPUTS]),
        ({"reference": "*", "plugin": "*.py"}, ["--reference=*", "--plugin=*.py", "--workers=2"]),
    ],
)  # fmt: skip
def test_bench_gets_what_the_inputs_say(inputs: dict[str, str], expected: list[str], tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    before = sorted(path.name for path in runner.workspace.iterdir())
    assert runner.run(inputs) == 0, runner.output
    assert checked(runner) == [*expected, *WRITTEN]
    assert sorted(path.name for path in runner.workspace.iterdir()) == [*before, "bench-check"]
    cached = [use for use, _ in runner.used if "cache" in use]
    assert (cached != []) == ("fetch" in inputs)
    if HOSTILE not in inputs.values():
        name, parameters = parsed(["bench", "check", *checked(runner)])
        assert (name, parameters["update"]) == ("check", False)
        assert str(parameters["html"]) == "bench-check/report.html"
        for given in {"strict", "tolerance", "workers"} & {name for name, value in inputs.items() if value}:
            assert str(parameters[given]).lower() == inputs[given]


@pytest.mark.parametrize(
    ("strict", "bench"), [("false", 2), ("maybe", 0), ("True", 0), ("$(touch pwned)", 0)]
)
def test_a_use_that_fails_keeps_nothing_of_the_one_before(tmp_path: Path, strict: str, bench: int) -> None:
    runner = Runner(tmp_path, summary=None, bench=bench)
    folder = runner.workspace / "bench-check"
    folder.mkdir()
    for name in ("report.html", "junit.xml", "verdict.json", "summary.md"):
        (folder / name).write_text("the first's")
    inputs = {"strict": strict, "comment": "true"}
    assert runner.run(inputs, github__event__pull_request__number=5) == 2
    assert {path.name for path in folder.iterdir()} <= {"requirements.txt"}
    assert runner.called("gh") == []
    if not bench:
        facts = ("::error title=bench check::strict", "true", "false")
        assert (missing_facts(runner.output, *facts), runner.called("bench")) == ([], [])
        assert runner.run({"strict": "true", "allow-versions": strict}) == 2
        assert not missing_facts(runner.output, "::error title=bench check::allow-versions")


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_the_build_ends_as_bench_check_does_with_files_and_summary_kept(code: int, tmp_path: Path) -> None:
    runner = Runner(tmp_path, summary="## bench check\n\nits table\n", bench=code)
    summary = tmp_path / "step summary.md"
    summary.write_text("before\n")
    assert runner.run({}) == code
    assert summary.read_text().split("\n\n") == ["before\n## bench check", "its table\n"]
    (upload,) = (given for use, given in runner.used if "upload-artifact" in use)
    assert (upload["name"], upload["path"]) == ("bench-check", "bench-check/")
    assert runner.called("gh") == []


@pytest.mark.parametrize("name", ["constraints.txt", "my constraints.txt", "-r.txt", "$(touch pwned).txt"])
def test_pip_installs_what_is_asked_for_under_the_constraints(name: str, tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    (runner.workspace / name).write_text("torch==2.13.0")
    assert runner.run({"version": "cse-bench==0.1.0\n.", "constraints": name}) == 0, runner.output
    (install,) = runner.called("python")
    assert install[:3] == ["-m", "pip", "install"]
    assert install[3:] == ["--requirement=bench-check/requirements.txt", f"--constraint={name}"]
    lines = (runner.workspace / "bench-check" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["cse-bench==0.1.0", "."]
    assert {"# torch==2.13.0", '# name = "cse-bench"'} <= set(lines)  # a change makes another pip cache
    use, setup = runner.used[0]
    assert use.startswith("actions/setup-python@")
    assert (setup["cache"], setup["cache-dependency-path"]) == ("pip", "bench-check/requirements.txt")
    assert not (runner.workspace / "pwned").exists()


def test_pip_installs_the_action_s_own_checkout_and_stops_without_the_constraints(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    assert runner.run({"constraints": "nowhere.txt"}) != 0
    assert "nowhere.txt" in runner.output
    assert runner.called("python") == runner.called("bench") == []
    assert runner.run({}) == 0
    text = (runner.workspace / "bench-check" / "requirements.txt").read_text()
    assert text.splitlines()[0] == str(ROOT)
    assert runner.called("python")[0][-1] == "--requirement=bench-check/requirements.txt"


@pytest.mark.parametrize("hit", ["true", "", None])
def test_data_are_fetched_once_and_kept_before_the_check(hit: str | None, tmp_path: Path) -> None:
    runner = Runner(tmp_path, bench=0)
    facts = {"steps__data__outputs__cache-hit": hit}
    assert runner.run({"fetch": "sts7 * -h", "data": "my data"}, **facts) == 0, runner.output
    caches = [(use.split("@")[0], given) for use, given in runner.used if "cache/" in use]
    fetched = [words[1:] for words in runner.called("bench") if words[0] == "data"]
    if hit == "true":
        assert [name for name, _ in caches] == ["actions/cache/restore"]
        assert fetched == []
        return
    assert [name for name, _ in caches] == ["actions/cache/restore", "actions/cache/save"]
    assert caches[0][1] == caches[1][1] == {"path": "my data", "key": "bench-data-Linux-sts7 * -h"}
    assert fetched == [["fetch", "--data=my data", "--", name] for name in ("sts7", "*", "-h")]
    assert parsed(["bench", "data", *fetched[0]])[1]["name"] == "sts7"
    uses = [step.get("uses", step.get("name")) for step in STEPS]
    assert uses.index("Check") > next(i for i, use in enumerate(uses) if "cache/save" in use)


MARKER = "<!-- bench check: bench-check -->"
ISSUES = "repos/them/theirs/issues"


@pytest.mark.parametrize("found", ["", "41", "41\n52"])
def test_the_comment_is_written_once_and_then_updated(found: str, tmp_path: Path) -> None:
    runner = Runner(tmp_path, found=found, summary="## bench check\n\n**by @them**\n", bench=1)
    assert runner.run({"comment": "true"}, github__event__pull_request__number=5) == 1
    look, write = runner.called("gh")
    assert look[:3] == ["api", "--paginate", f"{ISSUES}/5/comments?per_page=100"]
    where = [*("PATCH", f"{ISSUES}/comments/41")] if found else [*("POST", f"{ISSUES}/5/comments")]
    assert write[:5] == ["api", "--silent", "--method", *where]
    (body,) = runner.bodies()
    link = "[Log and artefact `bench-check`](https://github.example/them/theirs/actions/runs/7)"
    assert body == f"{MARKER}\n## bench check\n\n**by @<!-- -->them**\n\n{link}\n"


def test_only_a_bot_s_comment_is_updated_and_no_token_stands_in_a_script() -> None:
    script = SCRIPTS["Comment"]
    assert 'select(.user.type == "Bot" and (.body | startswith(env.MARKER))) | .id' in script
    (step,) = (step for step in STEPS if step.get("name") == "Comment")
    assert [name for name, value in step["env"].items() if "token" in value] == ["GH_TOKEN"]
    assert [step["name"] for step in STEPS if "token" in json.dumps(step)] == ["Comment"]


def test_a_long_table_is_cut_to_what_a_comment_may_have(tmp_path: Path) -> None:
    rows = "".join(f"| row {i} | {'é' * 40} |\n" for i in range(4_000))
    runner = Runner(tmp_path, summary=rows)
    assert runner.run({"comment": "true"}, github__event__pull_request__number=5) == 0, runner.output
    (body,) = runner.bodies()
    assert 20_000 < len(body) < 65_536
    assert all(line in rows for line in body.splitlines() if line.startswith("| row"))


@pytest.mark.parametrize("number", [5, None])
@pytest.mark.parametrize("code", [0, 1])
def test_a_comment_that_can_t_be_written_changes_no_verdict(
    code: int, number: int | None, tmp_path: Path
) -> None:
    runner = Runner(tmp_path, bench=code, gh=1)
    assert runner.run({"comment": "true"}, github__event__pull_request__number=number) == code
    assert ("::warning title=bench check::" in runner.output) == (number is not None)
    assert len(runner.called("gh")) == (number is not None)


def pins(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return dict(line.split("==") for line in lines)


def test_the_constraints_are_the_reference_s_versions() -> None:
    pinned = pins((ROOT / ".github" / "constraints.txt").read_text())
    records = sorted((ROOT / "results" / "reference").glob("*/*/*/*.json"))
    assert len(records) >= 8
    provenances = [json.loads(record.read_text())["provenance"] for record in records]
    (python,) = {step["with"]["python-version"] for step in steps_of(workflow("bench-check"))[1:]}
    for provenance in provenances:
        assert pinned == {name: text.partition("+")[0] for name, text in provenance["versions"].items()}
        assert f"{provenance['python']}.".startswith(f"{python}.")


@pytest.mark.parametrize(
    ("base", "labels", "reference"),
    [
        (None, None, "results/reference"),
        ("", None, "results/reference"),
        ("main", ["bug"], "origin/main"),
        ("main", ["bug", "new reference"], "results/reference"),
    ],
)
def test_the_workflow_takes_the_target_branch_s_reference(
    base: str | None, labels: list[str] | None, reference: str, tmp_path: Path
) -> None:
    facts = workflow("bench-check")
    context = {"github.base_ref": base, "github.event.pull_request.labels.*.name": labels}
    new = evaluate(facts["env"]["NEW"], context)
    checkout, use = steps_of(facts)
    inputs = {n: evaluate(v, {**context, "env.NEW": str(new).lower()}) for n, v in use["with"].items()}
    runner = Runner(tmp_path)
    (runner.workspace / ".github").mkdir()
    (runner.workspace / ".github" / "constraints.txt").write_text("")
    assert runner.run(inputs) == 0, runner.output
    assert checked(runner) == [f"--reference={reference}", "--workers=2", "--strict", *WRITTEN]
    assert checkout["with"] == {"fetch-depth": 0, "persist-credentials": False}


@pytest.mark.parametrize("text", [WORKFLOWS["bench-check"].read_text(), TEXTS["gate-in-a-build.md"]])
def test_a_use_of_the_action_gives_inputs_that_it_has(text: str) -> None:
    yaml = [content for language, content in blocks(text) if language == "yaml"] or [text]
    (facts,) = map(read, yaml)
    uses = [step for step in steps_of(facts) if not step["uses"].startswith("actions/")]
    assert uses
    for step in uses:
        assert set(step["with"]) <= set(FACTS["inputs"])
        assert all(isinstance(value, str) for value in step["with"].values())
    artifacts = [step["with"].get("artifact", "bench-check") for step in uses]
    assert len(set(artifacts)) == len(artifacts)
    assert facts["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert "pull_request_target" not in facts[True]


def test_ci_may_call_the_gate_and_everything_else_is_read_only() -> None:
    assert workflow("bench-check")["permissions"] == workflow("ci")["jobs"]["gate"]["permissions"]
    for name in ("ci", "submission", "release", "weekly"):
        assert workflow(name)["permissions"] == {"contents": "read"}
    assert set(workflow("ci")["jobs"]) == {"test", "systems", "gate"}
    assert all("permissions" not in workflow("ci")["jobs"][name] for name in ("test", "systems"))


def test_every_bench_command_of_action_and_workflows_parses() -> None:
    found = []
    for path in (ACTION, *WORKFLOWS.values()):
        for line in re.findall(r"^ *(?:- run: )?(bench [a-z].*)", path.read_text(), re.M):
            text = line.partition(" || ")[0].replace('"${arguments[@]}"', "")
            found.append(parsed(Command(path, re.sub(r"\$\{?\w+\}?", "1", text), True).words))
    assert len(found) >= 5
    path = WORKFLOWS["bench-check"]
    for command in re.findall(r"\((bench check[^)]*)\)", path.read_text()):
        assert parsed(Command(path, command, True).words)[0] == "check"
    words = {command.words[1] for command in commands(ROOT / "docs" / "gate-in-a-build.md")}
    assert words == {"run", "check", "conformance", "data"}
