"""`elmo info` and `elmo convert` accept every format we read, and refuse damaged and hostile files."""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import make_allennlp
import make_bilm_hdf5
import make_many_langs
import make_nlpl
import make_tensorflow
from bridge import assert_equal, make_model
from commands import RunMain, run
from elmo import formats
from elmo.config import TextConfig
from elmo.embed import Embedder
from elmo.embed.description import find_vectors
from elmo.errors import ElmoError


def make_native(folder: Path) -> Path:
    formats.save_native(make_model(), folder)
    return folder


def make_zip(folder: Path) -> Path:
    return make_nlpl.make_zip(folder.with_suffix(".zip"), make_nlpl.make_folder(folder)[0])


def make_checkpoint(folder: Path) -> Path:
    make_tensorflow.make(folder)
    return folder / make_tensorflow.PREFIX


def make_archive(folder: Path) -> Path:
    state = make_allennlp.make_state_dict(make_bilm_hdf5.make_weights(make_bilm_hdf5.BASE))
    return make_allennlp.make_archive(folder.with_suffix(".tar.gz"), state, make_allennlp.make_config())


def make_unicode(folder: Path) -> Path:
    make_many_langs.make(folder)
    return folder


FORMATS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "native": (make_native, "native: model holds config.json"),
    "bilm": (
        lambda folder: make_bilm_hdf5.make(folder)[0],
        "bilm HDF5: lm_weights.hdf5 holds 'char_embed' and 'RNN_0', sizes from options.json",
    ),
    "nlpl": (make_zip, "archive: model.zip holds bilm HDF5: model.hdf5 holds 'char_embed'"),
    "tensorflow": (make_checkpoint, "TensorFlow checkpoint: model.ckpt_batch-7.index lists 'lm/char_embed'"),
    "allennlp": (make_archive, "archive: model.tar.gz holds AllenNLP: weights.th holds an Elmo"),
    "many_langs": (make_unicode, "ELMoForManyLangs: encoder.pkl and token_embedder.pkl"),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_info_says_what_was_recognized_and_why(kind: str, tmp_path: Path) -> None:
    make, sign = FORMATS[kind]
    source = make(tmp_path / "model")
    assert f"{source}: {sign}" in run("info", source)
    facts = json.loads(run("info", source, "--json"))
    assert facts["has_softmax"] == (kind == "tensorflow")
    assert facts["num_mixes"] == (2 if kind == "allennlp" else 0)
    assert (facts["num_layers"], facts["width"]) == (3, 12)


CONVERSIONS = set(product(FORMATS, ["native", "bilm"])) - {("many_langs", "native"), ("many_langs", "bilm")}
CONVERSIONS.remove(("allennlp", "bilm"))  # this warns, which tests/formats/test_allennlp_archive.py expects


@pytest.mark.parametrize(("kind", "target"), sorted(CONVERSIONS))
def test_convert_keeps_every_number(kind: str, target: str, tmp_path: Path) -> None:
    """All formats of the same architecture are converted to both formats that we write."""
    source = FORMATS[kind][0](tmp_path / "model")
    run("convert", source, tmp_path / "copy", "--to", target)
    found, wanted = formats.load(tmp_path / "copy"), formats.load(source)
    assert_equal(found.bilm, wanted.bilm)
    assert_equal(found.softmax, wanted.softmax)


def test_info_shows_the_card(tmp_path: Path) -> None:
    """The card is shown before the result, without the header that the Hub reads. JSON has the whole card."""
    formats.save_native(make_model(), tmp_path / "model", {"perplexity": "39.7"}, {"language": "cs"})
    shown = run("info", tmp_path / "model")
    assert shown.startswith("# ELMo biLM, 12 wide\n")
    assert "| perplexity | 39.7 |" in shown
    assert shown.index("Architecture: ") < shown.index("native: model holds")
    facts = json.loads(run("info", tmp_path / "model", "--json"))
    assert facts["card"].startswith("---\n")


def test_info_says_what_commands_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For vectors, a corpus and an index, `elmo info` says what they hold and what made them."""
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    monkeypatch.chdir(tmp_path)
    make_native(tmp_path / "model")
    (tmp_path / "text.txt").write_text("They didn't play .\n", encoding="utf-8")
    (tmp_path / "tagged.conllu").write_text("1\tplay\tplay\tNOUN\t_\t_\t0\troot\t_\t_\n\n", encoding="utf-8")
    for made, path, sentence, facts in (
        (
            ["embed", "model", "text.txt", "v.h5", "--layers", "top", "--tokenizer", "ptb"],
            "v.h5",
            r"v\.h5: vectors of tokens: 1 sentence and 5 tokens, 12 wide, float32\.\n"
            r"Made by elmo \S+: layers top, .*tokenizer ptb",
            {"kind": "vectors", "num_sentences": 1, "width": 12},
        ),
        (
            ["prepare", "corpus", "text.txt", "--min-count", "1"],
            "corpus",
            r"corpus: corpus for pretraining: 4 tokens in 1 sentence, 7 types, of which 7 are the vocabulary .*\n"
            r"Made by elmo prepare from text\.txt: tokenizer whitespace, sentences, case kept\.",
            {"kind": "corpus", "num_tokens": 4, "vocabulary_size": 7},
        ),
        (
            ["index", "model", "text.txt", "x.index", "--layer", "1", "--tokenizer", "ptb"],
            "x.index",
            r"x\.index: index of 5 tokens in 1 sentence, 8 types, vectors in float16\.\n"
            r"Made by elmo index from text\.txt with model model \(layer 1, checksum \w+\): tokenizer ptb",
            {"kind": "index", "num_tokens": 5, "model": "model"},
        ),
        (
            ["index", "model", "tagged.conllu", "y.index", "--tagged", "upos"],
            "y.index",
            r"y\.index: index of 1 token in 1 sentence, .*\nMade by elmo index from tagged\.conllu with model model",
            {"kind": "index", "num_tokens": 1, "source": {"inputs": ["tagged.conllu"]}},
        ),
    ):
        run(*made)
        output = run("info", path)
        assert re.match(sentence, output), output
        assert json.loads(run("info", path, "--json")).items() >= facts.items()


def test_a_folder_does_not_hide_the_model_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`en` always means that model, as everywhere; `./en` is the folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("They didn't play .\n", encoding="utf-8")
    run("prepare", "en", "text.txt", "--min-count", "1")
    assert run("info", "./en").startswith("./en: corpus for pretraining")
    assert "corpus for pretraining" not in run("info", "en")


def test_convert_stores_half_precision(tmp_path: Path) -> None:
    """The converted model has the rounded numbers. The published format can only store float32."""
    formats.save_native(make_model(), tmp_path / "model")
    convert = ["convert", tmp_path / "model", tmp_path / "half", "--storage", "bf16"]
    with pytest.raises(ElmoError, match=r"^--storage bf16: "):
        run(*convert, "--to", "bilm")
    assert not (tmp_path / "half").exists()
    run(*convert)
    assert load_file(tmp_path / "half" / "model.safetensors")["char_encoder.embedding.weight"].dtype == torch.bfloat16
    found, wanted = (formats.load(tmp_path / name).bilm.state_dict() for name in ("half", "model"))
    assert all(torch.equal(found[name], tensor.bfloat16().float()) for name, tensor in wanted.items())


def test_a_model_that_cannot_be_converted_leaves_nothing(tmp_path: Path) -> None:
    source = make_unicode(tmp_path / "model")
    with pytest.raises(ElmoError, match=r"^an ELMoForManyLangs model cannot be converted: it has word lists of "):
        run("convert", source, tmp_path / "new" / "copy")
    assert not (tmp_path / "new").exists()


def test_an_error_while_a_model_is_written_names_the_target(tmp_path: Path) -> None:
    model = make_model()
    with torch.no_grad():
        next(model.bilm.parameters()).fill_(1e5)
    formats.save_native(model, tmp_path / "model")
    target = tmp_path / "half"
    with pytest.raises(ElmoError, match=rf"^{re.escape(str(target))}/model\.safetensors: tensor "):
        run("convert", tmp_path / "model", target, "--storage", "float16")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_convert_writes_where_a_link_leads(tmp_path: Path) -> None:
    source = make_native(tmp_path / "model")
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    run("convert", source, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert formats.load(tmp_path / "disk").config == formats.load(source).config


def test_no_control_characters_reach_the_terminal(tmp_path: Path, run_main: RunMain) -> None:
    """They are escaped in messages, which stay on one line, and in results."""
    evil = "word2vec\x1b]0;owned\x07\nall is well"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "meta.json").write_text(json.dumps({"algorithm": evil}), encoding="utf-8")
    code, _, error = run_main(["info", str(tmp_path / "other")])
    assert code == 2
    assert "word2vec\\x1b]0;owned\\x07 all is well" in error
    model = formats.load(make_bilm_hdf5.make(tmp_path / "model")[0])
    model.text = TextConfig("ptb\x1b]0;owned\x07")
    formats.save_native(model, tmp_path / "native")
    code, out, _ = run_main(["info", str(tmp_path / "native")])
    assert code == 0
    assert "tokenizer ptb\\x1b]0;owned\\x07" in out
    assert "\x1b" not in out
    (tmp_path / "text.txt").write_text("A dog, and a cat.\n")
    words = ["embed", str(tmp_path / "native"), str(tmp_path / "text.txt"), str(tmp_path / "v.h5"), "--device", "cpu"]
    code, _, error = run_main([*words, "--tokenizer", "words"])
    assert (code, "\x1b" in error) == (0, False)
    assert "was cut by tokenizer ptb\\x1b]0;owned\\x07, not by words" in error


def test_a_single_number_in_place_of_vectors(tmp_path: Path, run_main: RunMain) -> None:
    """No file of ours is like this one; `elmo info` says so in a sentence."""
    np.savez(tmp_path / "number.npz", sentence_vectors=np.float32(3))
    assert find_vectors(tmp_path / "number.npz") is None
    code, out, error = run_main(["info", str(tmp_path / "number.npz")])
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith(f"elmo: {tmp_path}/number.npz: contains no model; expected ")


def test_vectors_after_a_header_of_another_version(tmp_path: Path) -> None:
    """Another program may write the header of an array in version 2.0 of NumPy's format."""
    with zipfile.ZipFile(tmp_path / "long.npz", "w") as archive, archive.open("0.npy", "w") as file:
        np.lib.format.write_array(file, np.zeros((4, 6), np.float32), version=(2, 0))
    found = find_vectors(tmp_path / "long.npz")
    assert found is not None
    assert (found.num_sentences, found.width) == (1, 6)


def test_facts_of_another_program_are_of_any_type(tmp_path: Path) -> None:
    Embedder(make_model()).write(tmp_path / "v.npz", [["a"]], facts={"num_tokens": "many"})
    assert "vectors of tokens: 1 sentence, " in run("info", tmp_path / "v.npz")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
@pytest.mark.parametrize("ending", ["npz", "h5", "parquet"])
def test_a_file_of_vectors_whose_name_is_not_utf8(ending: str, tmp_path: Path) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    path = tmp_path / os.fsdecode(b"caf\xe9.") / f"v.{ending}"
    path.parent.mkdir()
    Embedder(make_model()).write(path, [["a"]])
    found = find_vectors(path)
    assert found is not None
    assert found.num_sentences == 1


def test_a_table_of_another_program(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")
    kind = pa.list_(pa.struct([("x", pa.float32())]), 2)
    rows = pa.array([[{"x": 1.0}, {"x": 2.0}]], kind)
    parquet.write_table(pa.table({"sentence": pa.array([0]), "vector": rows}), tmp_path / "x.parquet")
    assert find_vectors(tmp_path / "x.parquet") is None


def test_a_hostile_file_gives_one_sentence(tmp_path: Path, run_main: RunMain) -> None:
    folder = make_bilm_hdf5.make_options(), make_bilm_hdf5.make_weights(make_bilm_hdf5.make_options())
    folder[1]["char_embed"][0, 0] = np.nan
    make_bilm_hdf5.write(tmp_path / "model", *folder)
    code, out, error = run_main(["info", str(tmp_path / "model")])
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert "contains nan, not a weight" in error


def test_info_says_what_is_in_files_of_vectors_and_in_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    monkeypatch.chdir(tmp_path)
    make_native(tmp_path / "model")
    for number in range(7):
        (tmp_path / f"{number}.txt").write_text("a play\n")
    (tmp_path / "tagged.txt").write_text("a\tDET\nplay\tNOUN\n")
    (tmp_path / "dates.tsv").write_text("file\tyear\tplace\ntagged\t1843\tBath\n")
    for made, path, wanted in (
        (["embed", "model", "0.txt", "v.npz", "--pool", "mean"], "v.npz", "vectors of sentences: 1 sentence, 3 layers"),
        (
            ["prepare", "five", *(f"{number}.txt" for number in range(5)), "--min-count", "5"],
            "five",
            "4.txt: tokenizer",
        ),
        (["prepare", "all", "*.txt", "--min-count", "7"], "all", "3.txt, 4.txt and 3 more files: tokenizer whitespace"),
        (["prepare", "half", "0.txt", "1.txt", "tagged.txt", "--min-count", "3"], "half", "(25.00% of the tokens are"),
        (
            ["index", "model", "tagged.txt", "i", "--tagged", "columns", "--metadata", "dates.tsv"],
            "i",
            "vectors in float16, parts of speech DET, NOUN, metadata year, place.",
        ),
    ):
        run(*made)
        assert wanted in run("info", path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows finds no file of such a name")
def test_errors_of_the_system_are_one_sentence_that_begins_with_the_file(run_main: RunMain) -> None:
    name = "a" * 300
    assert run_main(["info", name]) == (2, "", f"elmo: {name}: file name too long\n")
