"""Methods that build on others: refused members, SICK's sentences, and the student's pooling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.encoder import Encoder
from bench.errors import InputError
from bench.nn.backbone import TransformerEncoder
from bench.registry import discover
from bench.stages import ComposedMethod
from tests.support.messages import missing_facts
from tests.support.training import SENTENCES, options_of, plan_on_toy, train_alone


def members_of(name: str, **given: bool | str | float) -> dict[str, str]:
    method = discover().get(name)
    assert isinstance(method, ComposedMethod)
    return dict(method.members(options_of(name, **given)))


@pytest.mark.parametrize(
    ("methods", "facts"),
    [
        ("ensemble:simcse", ("ensemble:simcse", "one method", "ensemble:METHOD+METHOD")),
        ("ensemble:simcse+", ("''", "weighted method")),
        ("ensemble:0*simcse+simcse", ("'0*simcse'", "weighted method")),
        ("ensemble:simcse[+simcse", ("'ensemble:simcse[+simcse'",)),
        ("ensemble:simcs+simcse", ("'simcs'",)),
        ("distill", ("--methods distill", "distill:METHOD")),
        ("distill:distill:simcse", ("builds on itself",)),
        ("static:word_overlap", ("word_overlap", "no transformer")),
        ("static:vectors:/x.txt", ("vectors", "no transformer")),
        ("static:whitening[fit=train]", ("whitening", "vectors of sentences")),
        ("static:st:/x", ("st:", "hf:PATH:POOLING")),
        ("static:static:simcse", ("static builds on itself",)),
        ("static[of=]", ("--methods static", "static:METHOD")),
        ("rankcse[teacher1=,teacher2=]", ("rankcse.teacher1",)),
        ("rankcse[teacher1=rankcse,teacher2=]", ("rankcse builds on itself",)),
        ("diffcse[generator=nowhere]", ("diffcse.generator: 'nowhere'",)),
    ],
)
def test_what_a_method_cannot_build_on(methods: str, facts: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        plan_on_toy(methods, tmp_path)
    assert not missing_facts(caught.value, *facts)


@pytest.mark.parametrize("twin", ["tncse", "jtcse"])
def test_sick_reaches_the_twin(twin: str) -> None:
    assert members_of(f"{twin}_d") == {"teacher": twin}
    assert members_of(f"{twin}_d", sick=True) == {"teacher": f"{twin}[sick=true]"}
    assert members_of(f"{twin}_uc", uc="simcse") == {"twin": twin, "uc": "simcse"}
    assert members_of(f"{twin}_uc", sick=True) == {"twin": f"{twin}[sick=true]", "uc": "infocse"}
    union = f"{twin}_uc[uc=simcse,w=0.25"
    assert members_of(f"{twin}_uc_d", uc="simcse", w=0.25) == {"teacher": f"{union}]"}
    assert members_of(f"{twin}_uc_d", uc="simcse", w=0.25, sick=True) == {"teacher": f"{union},sick=true]"}
    assert members_of("distill", of=twin, sick=True) == {"teacher": twin}  # only the student's


def test_the_twin_of_a_distilled_union_is_the_one_with_sick(tmp_path: Path, tiny_bert: Path) -> None:
    methods = "tncse[sick=true],tncse_d[sick=true],tncse_uc_d[uc=simcse,sick=true]"
    jobs = plan_on_toy(methods, tmp_path, backbone=str(tiny_bert)).jobs
    stages = {job.record.name: job.record.training["stages"] for job in jobs}
    joint = stages["tncse"]["joint"]["key"]
    assert stages["tncse_d"]["teacher/joint"]["key"] == joint
    assert stages["tncse_uc_d"]["teacher/twin/joint"]["key"] == joint


def test_a_union_of_single_encoders_and_its_student(tmp_path: Path) -> None:
    union = "ensemble:0.3*rankcse+0.7*infocse"
    jobs = plan_on_toy(f"uc={union},uc_d=distill[of={union},sick=true,lr=1.5e-5]", tmp_path).jobs
    parts, student = (job.cell for job in jobs)
    assert [(member.card.name, role) for role, member in parts.members] == [
        ("rankcse", "1"),
        ("infocse", "2"),
    ]
    distilled = student.stages[-1]
    assert (distilled.spec.text, dict(distilled.spec.config)["lr"]) == ("train+sick", 1.5e-5)
    assert {stage.key for stage in parts.all_stages} < {stage.key for stage in student.all_stages}
    assert {stage.spec.text for stage in parts.all_stages} == {"train"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tncse_d", "jtcse_uc_d", "distill"])
def test_a_student_under_another_pooling(tmp_path: Path, tiny_bert: Path, name: str) -> None:
    """The same student, read otherwise; avg_first_last takes layer 1, as for every trained encoder."""
    given = {"members": {"teacher": TransformerEncoder(tiny_bert, "avg")}}
    trained = train_alone(name, tiny_bert, tmp_path, given)
    assert trained.losses[-1] < trained.losses[0]
    for pooling in ("cls", "avg", "avg_first_last", "pooler"):
        found = trained.encoder(pooling=pooling)
        wanted = TransformerEncoder(trained.folder / "selected", pooling, first_layer="layer1")
        assert isinstance(found, Encoder)
        assert np.array_equal(found.encode(SENTENCES), wanted.encode(SENTENCES))
