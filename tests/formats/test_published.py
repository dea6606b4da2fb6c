"""The list of published models is complete and consistent, and its names lead to downloads."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest

import elmo
import make_nlpl
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats.download import is_address
from elmo.formats.model_cache import cached_models
from elmo.formats.published import find_by_address, find_published, in_language, published_models
from elmo.formats.sources import is_download
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, make
from serving import serving


def test_every_model_says_what_it_is() -> None:
    for name, model in published_models().items():
        assert name == model.name
        for field in fields(model):
            assert getattr(model, field.name), f"{name}: {field.name}"
        assert all(map(is_address, model.files)), name
        assert len(model.files) == 1 or [each.rpartition(".")[2] for each in model.files] == ["json", "hdf5"], name
        assert "{" not in "".join(model.files), name
    addresses = Counter(address for model in published_models().values() for address in model.files)
    assert set(addresses.values()) == {1}


def test_the_collections_are_complete() -> None:
    models = published_models().values()
    many = [model for model in models if model.title == "ELMoForManyLangs"]
    assert [model.name for model in many] == [f"nlpl:{number}" for number in range(136, 180)]
    assert len({model.code for model in many}) == 44
    assert {"allennlp:small", "allennlp:medium", "allennlp:original", "allennlp:original-5.5B"} <= set(
        published_models()
    )
    assert find_published("nlpl:162") == in_language(models, "la")[0]


def test_the_page_names_every_model() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "models.md").read_text(encoding="utf-8")
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert f"`elmo models` lists {len(published_models())} published models" in readme
    assert [name for name in published_models() if f"`{name}`" not in page] == []
    for model in published_models().values():
        if model.title == "ELMoForManyLangs":
            assert f"`{model.name}` {model.language} |" in page


def test_no_address_is_said_to_work_without_a_date() -> None:
    assert all(
        any(map(str.isdigit, model.alive)) for model in published_models().values() if "unknown" not in model.alive
    )


def test_languages_are_found_by_code_and_name() -> None:
    models = published_models().values()
    assert {model.code for model in in_language(models, "Norwegian")} == {"nb", "nn", "no"}
    assert {model.code for model in in_language(models, "no")} == {"no"}
    assert [model.name for model in in_language(models, "protein")] == ["rostlab:seqvec"]
    assert {model.code for model in in_language(models, "deu")} == {
        model.code for model in in_language(models, "de-AT")
    }
    for code in ("is", "ta"):  # Icelandic and Tamil, not English, Catalan and Italian
        with pytest.raises(ElmoError, match=f"^language {code}: no published model"):
            in_language(models, code)
    with pytest.raises(ElmoError, match=r"^language tlh: no published model is listed for it; the list has ar, bg"):
        in_language(models, "tlh")


def test_other_numbers_of_the_nlpl_repository_are_addresses() -> None:
    model = find_published("nlpl:4711")
    assert model is not None
    assert model.files == ("http://vectors.nlpl.eu/repository/20/4711.zip",)
    assert model.license == "not stated"


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ElmoError, match=r"^allennlp:huge: no such published model; in allennlp there are small, med"):
        formats.load("allennlp:huge")
    with pytest.raises(ElmoError, match=r"^nlpl:latin: no such published model; in nlpl models go by their numbers"):
        formats.load("nlpl:latin")


@pytest.mark.parametrize(
    "source", ["C:model", "model:1", "c:\\model", "nlpl", Path("nlpl:162"), Path("https://x/y.zip")]
)
def test_paths_are_no_downloads(source: str | Path) -> None:
    assert not is_download(source)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("EN", "en"),
        ("English ", "en"),
        ("original", "allennlp:original"),
        ("166", "nlpl:166"),
        ("hu", "nlpl:157"),
        ("hungarian", "nlpl:157"),
        ("allenlp:original", "allennlp:original"),
        ("rostlabs:seqvec", "rostlab:seqvec"),
    ],
)
def test_a_word_that_may_stand_for_a_model(name: str, meant: str) -> None:
    with pytest.raises(ElmoError) as caught:
        formats.load(name)
    assert str(caught.value) == f"{name}: no such file or folder; did you mean {meant}? (elmo models lists all)"


@pytest.mark.parametrize("name", ["hu-corpus", "en_model", "no-such-file", "english.hdf5"])
def test_a_path_that_begins_with_a_language_does_not_stand_for_a_model(name: str) -> None:
    with pytest.raises(ElmoError, match=rf"^{re.escape(name)}: no such file or folder$"):
        formats.load(name)


def test_a_model_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is downloaded once, by whatever name or address it is asked for."""
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    archive = make_nlpl.make_zip(tmp_path / "model.zip", make_nlpl.make_folder(tmp_path / "model")[0])
    folder, _, _ = make(tmp_path / "pair")
    with serving() as site:
        site.files = {"/162.zip": archive.read_bytes()}
        site.files |= {f"/{name}": (folder / name).read_bytes() for name in (OPTIONS_FILE, WEIGHTS_FILE)}
        paths = {"nlpl:162": ["/162.zip"], "allennlp:small": [f"/{OPTIONS_FILE}", f"/{WEIGHTS_FILE}"]}
        for name, each in paths.items():
            own = replace(published_models()[name], files=tuple(f"{site.address}{path}" for path in each))
            monkeypatch.setitem(published_models(), name, own)
            assert find_by_address(own.files[-1]) == own
            assert formats.load(name).origin.startswith(f"download: {name} holds ")
            num_requests = len(site.requests)
            formats.load(own.files[-1])
            elmo.Elmo.from_pretrained(name)
            assert elmo.load(name).embed([["A", "play"]])[0].shape == (2, 12)
            assert len(site.requests) == num_requests
    assert [model.name for model in cached_models()] == ["allennlp:small", "nlpl:162"]
