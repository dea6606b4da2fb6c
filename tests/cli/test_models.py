"""`elmo models` lists the models, shows the cache and removes models from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import RunMain
from elmo.formats.model_cache import fetch
from elmo.formats.published import published_models
from serving import serving


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Choose a folder that doesn't exist yet as the cache, and return it."""
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_list_is_a_table(cache: Path, run_main: RunMain) -> None:
    code, out, err = run_main(["models"])
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == 1 + len(published_models())
    assert [line.split()[0] for line in lines[1:]] == list(published_models())
    assert err.startswith(f"Published models: {len(published_models())}, of which 0 in the cache. ")
    (latin,) = (line for line in lines if "Latin (la)" in line)
    assert latin.startswith("nlpl:162 ")
    assert latin.endswith(" unknown  http://vectors.nlpl.eu/repository/11/162.zip")
    assert latin.index("unknown") == lines[0].index("alive")
    assert not cache.exists()


def test_a_language_as_json(cache: Path, run_main: RunMain) -> None:
    code, out, err = run_main(["models", "--language", "la", "--json"])
    (model,) = json.loads(out)["models"]
    assert (code, err) == (0, "")
    assert (model["name"], model["language"], model["is_cached"]) == ("nlpl:162", "Latin", False)
    assert model["alive"] == "unknown (not tried yet)"
    assert set(model) >= {"size", "tokens", "license", "files", "sources"}


def test_the_cache_is_shown_and_cleared(cache: Path, run_main: RunMain) -> None:
    with serving() as site:
        site.files["/162.zip"] = b"x" * 1_500_000
        fetch("nlpl:162", {"162.zip": f"{site.address}/162.zip"})
    code, out, err = run_main(["models", "--cached"])
    assert (code, out) == (0, f"nlpl:162  1.5 MB  complete  {cache / 'nlpl-162'}\n")
    assert err == f"{cache}: 1.5 MB; models: 1.\n"
    shown = json.loads(run_main(["models", "--cached", "--json"])[1])
    assert shown["folder"] == str(cache)
    assert [model["num_bytes"] for model in shown["models"]] == [1_500_000]
    latin = json.loads(run_main(["models", "--language", "la", "--json"])[1])
    assert latin["models"][0]["is_cached"]

    code, out, _ = run_main(["models", "--remove", "nlpl:162"])
    assert (code, out) == (0, f"nlpl:162: removed 1.5 MB from {cache / 'nlpl-162'}; the checksums are kept.\n")
    assert json.loads(run_main(["models", "--cached", "--json"])[1])["models"] == []
    code, _, err = run_main(["models", "--remove", "nlpl:162"])
    assert code == 2
    assert err.startswith(f"elmo: nlpl:162: is not in the cache, {cache}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--language", "tlh"], "language tlh: no published model is listed for it"),
        (["--cached", "--language", "la"], "--language, --cached and --remove: pass only one of them"),
        (["--cached", "--remove", "x"], "--language, --cached and --remove: pass only one of them"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: list[str],
    message: str,
    cache: Path,
    run_main: RunMain,
) -> None:
    code, out, err = run_main(["models", *options])
    assert (code, out) == (2, "")
    assert err.startswith(f"elmo: {message}")
    assert err.count("\n") == 1


def test_an_address_that_cannot_be_reached_gives_one_sentence(cache: Path, run_main: RunMain) -> None:
    code, _, err = run_main(["info", "http://127.0.0.1:9/model.zip"])
    assert code == 2
    assert err.startswith("elmo: http://127.0.0.1:9/model.zip: can't be reached (")
    assert err.count("\n") == 1


def test_cached_models_are_counted(cache: Path, run_main: RunMain) -> None:
    with serving() as site:
        site.files["/162.zip"] = b"x"
        fetch("nlpl:162", {"162.zip": f"{site.address}/162.zip"})
    assert ", of which 1 in the cache. " in run_main(["models"])[2]


def test_the_address_of_a_model_of_two_files_is_that_of_its_weights(cache: Path, run_main: RunMain) -> None:
    rows = run_main(["models"])[1].splitlines()[1:]
    addresses = {row.split()[0]: row.split()[-1] for row in rows}
    assert addresses["allennlp:original"].endswith("weights.hdf5")
