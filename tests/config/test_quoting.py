"""Paths in double quotes: read, refused, suggested."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.config.method_ids import (
    bracket_depths,
    match_recorded_id,
    parse_method,
    parse_methods,
    quote_path,
    quote_value,
    split_argument,
    split_outside_brackets,
    split_path,
)
from bench.config.run_spec import MethodRequest
from bench.errors import InputError
from bench.method_card import MethodCard
from bench.records.filesystem import model_stem
from bench.registry import discover
from tests.support.messages import check_error


def split(text: str) -> tuple[str | None, tuple[str, str] | None]:
    request = parse_method(text, "test")
    return split_argument(request, card(request))


def card(request: MethodRequest) -> MethodCard:
    return discover().get(request.name).card


@pytest.mark.parametrize(
    ("text", "path", "short"),
    [
        ('hf:"my,folder[v=2]"', "my,folder[v=2]", None),
        ('hf:"my,folder[v=2]":avg', "my,folder[v=2]", "avg"),
        ('hf:"my,folder" : avg', "my,folder", "avg"),
        ('hf: "my,folder"', "my,folder", None),
        ('ALIAS=hf:"a=b":cls', "a=b", "cls"),
        ('hf:"a""b,c"', 'a"b,c', None),
        ('hf:"""x"""', '"x"', None),
        ('hf:"it\'s, two"', "it's, two", None),
        ('hf:"a:b":avg', "a:b", "avg"),
        ('hf:"a:avg"', "a:avg", None),
        ('hf:"~/x,y"', "~/x,y", None),
        ('hf:"./é ü,ß"', "./é ü,ß", None),
        ('hf:"-x,y"', "-x,y", None),
        ('hf:"a+b]c["', "a+b]c[", None),
        (r'hf:"C:\models\x,y":avg', r"C:\models\x,y", "avg"),
        ('hf:"C:\\models\\"', "C:\\models\\", None),
        (r'hf:"\\server\share[1]"', r"\\server\share[1]", None),
        ('st:"a,b"', "a,b", None),
        ('vectors:"glove,300.txt":sif', "glove,300.txt", "sif"),
        # and without quotes, as before
        ("hf:/models/x=1:avg", "/models/x=1", "avg"),
        ("hf:/models/a b", "/models/a b", None),
        ('hf:/models/a"b', '/models/a"b', None),
        (r"hf:C:\models\x", r"C:\models\x", None),
        (r"hf:C:\models\x:avg", r"C:\models\x", "avg"),
    ],
)
def test_paths(text: str, path: str, short: str | None) -> None:
    assert split(text) == (path, ("pooling", short) if short else None)


def test_a_list_is_split_outside_quotes() -> None:
    text = r'untrained,A=hf:"x,y[z=1]":avg,hf:"p""q,r"[pooling=avg,prompt="a\, b"],st:"C:\m\",simcse[lr=1]'
    methods = parse_methods(text)
    assert [method.text for method in methods] == split_outside_brackets(text)
    assert [method.name for method in methods] == ["untrained", "hf", "hf", "st", "simcse"]
    assert [method.alias for method in methods] == [None, "A", None, None, None]
    assert methods[2].options == (("pooling", "avg"), ("prompt", '"a, b"'))
    assert split_argument(methods[3], card(methods[3])) == ("C:\\m\\", None)
    assert ",".join(method.text for method in methods) == text


def test_quotes_in_methods_of_methods() -> None:
    (of,) = parse_methods('E=ensemble:0.3*hf:"a+b,c":avg+0.7*st:"d]e"[x=1]+untrained')
    assert (of.alias, of.name) == ("E", "ensemble")
    parts = split_outside_brackets(str(of.argument), "+")
    assert parts == ['0.3*hf:"a+b,c":avg', '0.7*st:"d]e"[x=1]', "untrained"]
    for text in ('distill:hf:"a,b":avg', 'distill:static:hf:"a]b"', 'static:hf:"a,[b"', 'released:hf:"a,b"'):
        assert [method.text for method in parse_methods(f"{text},simcse")] == [text, "simcse"]
    (of,) = parse_methods('distill[of=ensemble:hf:"a,b]+c"+untrained,lr=1]')
    assert of.options == (("of", 'ensemble:hf:"a,b]+c"+untrained'), ("lr", "1"))
    (of,) = parse_methods(r'distill[of=hf:"C:\a\b,c"]')
    assert of.options == (("of", r'hf:"C:\a\b,c"'),)
    assert quote_value(of.options[0][1]) == of.options[0][1]


@pytest.mark.parametrize(
    ("text", "value", "key"),
    [
        ('hf:"a', "'\"a'", "not closed"),
        ('hf:"a,untrained', "'\"a,untrained'", "not closed"),
        ('hf:"""', '"""', "not closed"),
        ('hf:"a""', '"a""', "not closed"),
        ('hf:""', "'\"\"'", "empty"),
        ('hf:" "', '" "', "empty"),
        ('hf:"a"b', "'b'", "closing quote"),
        ('hf:"a":', "':'", "closing quote"),
        ('hf:"a" "b"', "'\"b\"'", "closing quote"),
        ('hf:"a"=b', "'=b'", "closing quote"),
        ('"hf:a"', "'hf:\"PATH\":avg'", "quotes"),
        ('"untrained"', '"untrained"', "quotes"),
        ('ALIAS="hf:a"', 'ALIAS="hf:a"', "quotes"),
        ('hf"a"', 'hf"a"', "not a method"),
        ('hf:"a"[b', 'hf:"a"[b', "not a method"),
    ],
)
def test_bad_quotes(text: str, value: str, key: str) -> None:
    check_error(lambda: parse_methods(text), value, key, where="--methods", kind=InputError)


def test_quotes_where_none_belong() -> None:
    check_error(lambda: split('st:"a,b":avg'), "'st'", "':avg'", 'expected st:"a,b"', kind=InputError)
    check_error(lambda: split('untrained:"avg"'), "'untrained'", "expected no quotes", kind=InputError)
    check_error(lambda: split('word_overlap:"a"'), "'word_overlap'", "after a colon", kind=InputError)


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("token_prepending[start=6]:/m/llama", "token_prepending:/m/llama[start=6]"),
        ("a=echo[template=x]:models/opt:last", "a=echo:models/opt:last[template=x]"),
        ("untrained[pooling=avg", None),
        ("token_prepending[start=6]x:/m", None),
    ],
)
def test_options_before_the_path(text: str, typed: str | None) -> None:
    with pytest.raises(InputError, match="is not a method") as caught:
        parse_method(text, "test")
    hint = f"options stand last, after the path: {typed}"
    assert (caught.value.hint == hint) is (typed is not None)
    if typed is not None:
        parse_method(typed, "test")


@pytest.mark.parametrize(
    "name",
    ["my,folder", "my[v=2]", "x[a]b", "open[", "]shut", "a,b[c=1],d", 'q"u,o', "sp ace,two", "ü,é", "-x,y"],
)
@pytest.mark.parametrize("form", ["hf:{}", "hf:./{}", "A=hf:{}:avg", "untrained,st:{},simcse"])
def test_quotes_are_suggested(name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    before, after = form.split("{}")
    path = ("./" if before.endswith("./") else "") + name
    fixed = f"{before.removesuffix('./')}{quote_path(path)}{after}"
    assert check_error(lambda: parse_methods(form.format(name))).hint == f"type {shlex.quote(fixed)}"
    (method,) = (method for method in parse_methods(fixed) if method.name in ("hf", "st"))
    assert split_argument(method, card(method))[0] == path


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        (r"hf:my\,folder:avg", 'hf:"my,folder":avg'),
        (r"st:sub/v\[2\],simcse", 'st:"sub/v[2]",simcse'),
        ('hf:"my"",folder', ""),
        ('"hf:my,folder":avg', 'hf:"my,folder":avg'),
        ('"hf:my,folder",simcse', 'hf:"my,folder",simcse'),
        ("hf:'my,folder':avg", 'hf:"my,folder":avg'),
        ('hf:./"my,folder"', 'hf:"./my,folder"'),
        ('ensemble:"hf:my,folder+untrained"', 'ensemble:hf:"my,folder"+untrained'),
        ("ensemble:hf:my,folder+untrained", 'ensemble:hf:"my,folder"+untrained'),
        ("ensemble:untrained+0.5*hf:p+q:avg", 'ensemble:untrained+0.5*hf:"p+q":avg'),
        ("distill:hf:my,folder", 'distill:hf:"my,folder"'),
        ("distill[of=hf:my,folder]", 'distill[of=hf:"my,folder"]'),
        ("hf:my,folder,st:sub/v[2]", 'hf:"my,folder",st:"sub/v[2]"'),
    ],
)
def test_the_right_form_is_suggested(
    text: str, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("my,folder", "sub/v[2]", "p+q"):
        (tmp_path / name).mkdir(parents=True)
    assert check_error(lambda: parse_methods(text)).hint == (f"type {shlex.quote(typed)}" if typed else None)


def test_what_can_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("my", "my,untrained", "my[pooling=avg]", "p+q", "avg,simcse"):
        (tmp_path / name).mkdir()
    for text in (
        "hf:my,untrained",
        "hf:my[pooling=avg]",
        "hf:my:avg,untrained",
        "hf:p+q",
        "untrained:avg,simcse",
    ):
        assert [method.text for method in parse_methods(text)] == split_outside_brackets(text)
    (tmp_path / "a,b").mkdir()
    assert len(parse_methods("hf:a,b", recorded=True)) == 2  # names of records ignore the disk
    check_error(lambda: parse_methods("hf:a,b"), kind=InputError)


def test_rows_are_named_again_by_what_was_typed() -> None:
    names = ["untrained", "my_folder_v=2_-01234567[pooling=avg]", "A"]
    assert model_stem("sub/my,folder[v=2]", "0123456789abcdef") == "my_folder_v=2_-01234567"
    assert match_recorded_id("my_folder_v=2_-01234567:avg", names) == names[1]
    text = 'A=hf:"x,y":avg,untrained,my_folder_v=2_-01234567[pooling=avg]'
    assert split_outside_brackets(text) == ['A=hf:"x,y":avg', "untrained", names[1]]


def test_values_keep_their_escapes() -> None:
    (method,) = parse_methods(r'hf:x[prompt="say:\, \[\]\\n",template=C:\models\x]')
    assert dict(method.options) == {"prompt": '"say:, []\\n"', "template": r"C:\models\x"}
    for value in (r"C:\models\x", '"a, b"', 'means:"', "a[b=c\\,d]", "x\\", "[", r"\,"):
        (again,) = parse_methods(f"m[a={quote_value(value)}]")
        assert again.options == (("a", value),)
    assert quote_value(r"C:\m") == r"C:\\m"  # as rows of earlier versions are called


@given(st.text(st.sampled_from('ab"\\[],:=+*~ ./é')).filter(lambda path: path.strip() != ""))
def test_any_path_survives_its_quotes(path: str) -> None:
    text = f"A=hf:{quote_path(path)}:avg"
    assert split_path(quote_path(path)) == (path, "")
    assert split(text) == (path, ("pooling", "avg"))
    assert split_outside_brackets(f"{text},x") == [text, "x"]
    (sum_of,) = parse_methods(f"ensemble:hf:{quote_path(path)}+untrained")
    assert split_outside_brackets(str(sum_of.argument), "+") == [f"hf:{quote_path(path)}", "untrained"]


@given(st.text(st.sampled_from('hf:"[],\\+=')))
def test_every_character_has_a_depth(text: str) -> None:
    for inside in (False, True):
        assert len(bracket_depths(text, inside=inside)) == len(text)
