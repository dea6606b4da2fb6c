"""Recipes are read as they are written: nothing in a file is dropped without a word."""

from __future__ import annotations

import re
from dataclasses import field, make_dataclass
from pathlib import Path

import pytest

from elmo.errors import ElmoError
from elmo.schema import from_mapping, to_mapping
from elmo.tasks import load_task_recipe
from elmo.training.recipes import override, parse_override

SECTION = "training: {max_epochs: 3}\n"


@pytest.mark.parametrize(
    ("added", "says"),
    [
        (SECTION, r"my\.yaml, line 3: key 'training' is there twice; remove one, or join the two$"),
        ("words: {dim: 5,\n  dim: 6}\n", r"my\.yaml, line 4: key 'dim' is there twice"),
        ('"scheme": BIO\n', r"my\.yaml, line 3: key 'scheme' is there twice"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(
    added: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """YAML forbids it. PyYAML drops the first one, here a whole section of settings."""
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(f"scheme: BIOUL\n{SECTION}{added}")
    with pytest.raises(ElmoError, match=f"^{says}"):
        load_task_recipe("ner", "my.yaml")


def test_a_setting_with_a_key_twice_is_refused() -> None:
    with pytest.raises(ElmoError, match=r"^--set words=\{dim: 5, dim: 6\}: key 'dim' is there twice; remove one$"):
        parse_override("words={dim: 5, dim: 6}")


@pytest.mark.parametrize("value", ['!!int ""', '!!float ""', "!!bool 3", "!!timestamp soon", '{!!int "": 3}'])
def test_a_value_that_is_not_what_its_tag_says_is_refused(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyYAML raises an IndexError, a KeyError or an AttributeError for these."""
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(f"scheme: {value}\n")
    says = r"my\.yaml: is not valid YAML \(a value is not of the type that its tag says\)"
    with pytest.raises(ElmoError, match=f"^{says}$"):
        load_task_recipe("ner", "my.yaml")
    with pytest.raises(ElmoError, match=f"^{re.escape(f'--set scheme={value}: {value!r} is not valid YAML')}$"):
        parse_override(f"scheme={value}")


def test_a_name_that_is_too_long_for_a_file_is_refused() -> None:
    name = 5000 * "x"
    with pytest.raises(ElmoError, match=f"^recipe {name}: is neither a file nor one of ner, sst"):
        load_task_recipe("ner", name)


def test_a_section_keeps_the_keys_that_are_not_set() -> None:
    changed = load_task_recipe("ner", settings={"training": {"max_epochs": 5}, "elmo.at": "output"})
    assert changed == load_task_recipe("ner", settings={"training.max_epochs": 5, "elmo.at": "output"})
    with pytest.raises(ElmoError, match="training: unknown key 'max_epoch'"):
        load_task_recipe("ner", settings={"training": {"max_epoch": 5}})


def test_a_section_that_a_recipe_leaves_out_can_be_set() -> None:
    without = load_task_recipe("srl", settings={"words": None})
    assert to_mapping(override(without, {"words": {"dim": 5}}))["words"]["dim"] == 5


def test_sections_may_have_the_same_keys() -> None:
    """So may a mapping and another one that it is merged with."""
    _, found = parse_override("words=[&a {dim: 5}, {<<: *a, dim: 6}, {dim: 7, '7': 8, 7: 9}]")
    assert found == [{"dim": 5}, {"dim": 6}, {"dim": 7, "7": 8, 7: 9}]


@pytest.mark.parametrize(
    "merges",
    [[f"[{', '.join([f'*a{number}'] * 9)}]" for number in range(9)], [f"*a{n}, k{n}: 1" for n in range(2_000)]],
    ids=["lists", "chain"],
)
def test_merges_of_merges_are_not_multiplied_without_end(merges: list[str], tmp_path: Path) -> None:
    """Nine levels of nine merges would take hours, and a long chain of mappings gigabytes."""
    lines = ["a0: &a0 {k: 1}", *(f"a{number}: &a{number} {{<<: {part}}}" for number, part in enumerate(merges, 1))]
    (tmp_path / "my.yaml").write_text("\n".join(lines))
    with pytest.raises(ElmoError, match=r"my\.yaml: is not valid YAML \(it merges more keys than any recipe has\)$"):
        load_task_recipe("ner", str(tmp_path / "my.yaml"))


@pytest.mark.parametrize("text", ["training: {{seed: {}}}", "training: {{share: [-{}]}}"])
def test_a_number_that_python_cannot_write_is_refused(text: str, tmp_path: Path) -> None:
    """It is read from hexadecimal digits in no time, and every message about it would be an error of Python."""
    (tmp_path / "my.yaml").write_text(text.format(f"0x{'F' * 5_000}"))
    with pytest.raises(ElmoError, match=r"my\.yaml: is not valid YAML \(it has a number with more digits than"):
        load_task_recipe("ner", str(tmp_path / "my.yaml"))
    with pytest.raises(ElmoError, match=r"is not valid YAML$"):
        parse_override(f"training.seed=0x{'F' * 5_000}")


def test_a_default_that_is_made_may_be_missing_too() -> None:
    """A recipe's key may be a mapping, whose default a dataclass has to make for each object."""
    kind = make_dataclass("Kind", [("names", dict[str, int], field(default_factory=dict))])
    assert from_mapping(kind, {}, "recipe") == kind({})
