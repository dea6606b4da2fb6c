"""On the command line, raw text is cut as the model's training text was, and its places are kept."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import h5py
import pytest

import elmo as package
from bridge import make_model
from commands import RunMain
from elmo import formats
from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.tasks.task import TASKS, get_task, load_task_recipe
from elmo.text.choice import SAMPLE_CHARACTERS, choose_cut

RAW = "They didn't play. She wrote one, too.\n\nNew plays: none.\n"
TOKENIZED = "They did n't play .\nShe wrote one , too .\nNew plays : none .\n"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> Run:
    """Return a function that runs a command next to two texts and a `model` that knows how its text was cut."""
    model = make_model()
    model.text = TextConfig("ptb", "paragraphs", lowercase=False, language="en")
    formats.save_native(model, tmp_path / "model")
    (tmp_path / "raw.txt").write_text(RAW)
    (tmp_path / "tokenized.txt").write_text(TOKENIZED)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_main([*arguments])


def test_a_word_to_search_for_is_cut_as_the_text_is(run: Run, tmp_path: Path) -> None:
    """The model's tokenizer would make two tokens of "cannot", which is one in text that is already tokenized."""
    (tmp_path / "done.txt").write_text("they cannot come , she said .\nwe can not go .\nI cannot see it .\n")
    (tmp_path / "new.txt").write_text("They cannot come, she said.\nWe can not go.\nI cannot see it.\n")
    for name, word, uses in (("done", "cannot", 2), ("done", "cannot come", 1), ("new", "cannot", 3)):
        code, out, _ = run("neighbors", "model", f"{name}.txt", "--word", word, "--json")
        assert (code, json.loads(out)["num_uses"]) == (0, uses)


def test_raw_and_tokenized_text_give_the_same_vectors(run: Run) -> None:
    for name in ("raw", "tokenized"):
        code, out, err = run("embed", "model", f"{name}.txt", f"{name}.h5")
        assert (code, err) == (0, "")
        assert ("; raw text, cut as the model's training text was (tokenizer ptb, paragraphs)\n" in out) == (
            name == "raw"
        )
    with h5py.File("raw.h5") as raw, h5py.File("tokenized.h5") as tokenized:
        assert raw.keys() == tokenized.keys() == {"0", "1", "2", "sentence_to_index"}
        assert all((raw[name][()] == tokenized[name][()]).all() for name in "012")


def test_stored_vectors_are_of_the_tokens_of_the_model(run: Run) -> None:
    """There are 14 types in the text, and the two boundaries of sentences."""
    for name in ("raw", "tokenized"):
        code, out, err = run("warm", "model", f"{name}.txt", "--types")
        assert (code, err) == (0, "")
        assert "vectors of 16 words" in out
        assert ("; raw text, cut as the model's training text was (tokenizer ptb, paragraphs)\n" in out) == (
            name == "raw"
        )


def test_raw_held_out_text_is_noticed(run: Run) -> None:
    """A corpus of tokenized text is cut at spaces; so is its held-out text, which may be raw by mistake."""
    assert run("prepare", "corpus", "tokenized.txt", "--min-count", "1")[0] == 0
    steps = ["pretrain", "corpus", "tiny", "--recipe", "tiny", "--max-steps", "1", "--set", "training.batch_size=1"]
    for name, pattern, is_raw in (("raw", "r*.txt", True), ("raw", "raw.txt", True), ("tokenized", "tok*.txt", False)):
        code, _, err = run(*steps, "--heldout", pattern)
        assert (code, f"elmo: {name}.txt: this looks like raw text, and is cut at spaces only" in err) == (0, is_raw)


def test_finetuning_reads_held_out_text_as_it_is(run: Run) -> None:
    """The text that is trained on may be tokenized where held-out text is raw, and the other way round."""
    tuned = ["finetune", "model", "--new-softmax", "--min-count", "1", "--batch-size", "1", "--json"]
    found: dict[str, dict[str, float]] = {}
    note = "elmo: {}: is also in the training text, so perplexity on it says little\n"
    for name, pattern in (("raw", "r?w.txt"), ("tokenized", "tokenized.txt")):
        arguments = [*tuned[:2], name, "tokenized.txt", *tuned[2:], "--heldout", pattern]
        code, out, err = run(*arguments)
        assert (code, err) == (0, note.format(Path("tokenized.txt").resolve()) if name == "tokenized" else "")
        found[name] = json.loads(out)
    assert found["raw"]["perplexity_after"] == found["tokenized"]["perplexity_after"]
    assert found["raw"]["reading"] == found["tokenized"]["reading"]
    Path("copy.txt").write_bytes(Path("tokenized.txt").read_bytes())
    code, _, err = run(*tuned[:2], "copied", "tokenized.txt", *tuned[2:], "--heldout", "copy.txt")
    assert (code, err) == (0, note.format(Path("copy.txt").resolve()))
    code, out, _ = run("finetune", "model", "other", "raw.txt", *tuned[2:-1])
    assert (code, out.endswith("; raw text, cut as the model's training text was (tokenizer ptb, paragraphs)\n")) == (
        0,
        True,
    )


def test_options_for_raw_text_leave_held_out_conllu_as_it_is(run: Run) -> None:
    Path("held.conllu").write_text("1\tsaw\tsee\tVERB\t_\t_\t0\troot\t_\t_\n\n")
    tuned = ["finetune", "model", "tuned", "raw.txt", "--new-softmax", "--min-count", "1", "--batch-size", "1"]
    code, out, err = run(*tuned, "--tokenizer", "ptb", "--text", "paragraphs", "--heldout", "held.conllu")
    assert (code, err) == (0, "")
    assert ", on held-out text" in out


def test_the_first_bytes_of_standard_input_say_that_it_is_no_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(Path("raw.txt").read_bytes())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    code, _, err = run("embed", "model", "-", "a.h5")
    assert (code, err) == (2, "elmo: standard input: is compressed by gzip; decompress it\n")


def test_ids_before_conllu_are_refused(run: Run) -> None:
    Path("text.conllu").write_text("1\tsaw\tsee\tVERB\t_\t_\t0\troot\t_\t_\n\n")
    code, _, err = run("embed", "model", "text.conllu", "a.parquet", "--ids")
    assert code == 2
    assert "ids stand at the beginning of lines, which --text conllu joins" in err


def test_options_take_precedence_and_another_tokenizer_gets_a_note(run: Run) -> None:
    code, out, err = run("embed", "model", "raw.txt", "a.h5", "--tokenizer", "whitespace", "--json")
    assert code == 0
    assert err == "elmo: raw.txt: the model's training text was cut by tokenizer ptb, not by whitespace\n"
    assert json.loads(out)["num_sentences"] == 3
    assert json.loads(out)["reading"]["tokenizer"] == "whitespace"
    code, out, err = run("embed", "model", "raw.txt", "b.h5", "--text", "sentences", "--json")
    assert (code, err, json.loads(out)["num_tokens"]) == (0, "", 16)
    assert json.loads(out)["num_sentences"] == 3, "a line is a sentence, and a blank one has no tokens"


def test_a_folder_of_an_earlier_version_reads_as_before(run: Run) -> None:
    """Its config.json says nothing about text, so text is cut at spaces. One sentence warns about raw text."""
    path = Path("model/config.json")
    config = json.loads(path.read_text())
    assert config.pop("text") == {
        "tokenizer": "ptb",
        "text": "paragraphs",
        "lowercase": False,
        "language": "en",
        "oov_rate": None,
    }
    path.write_text(json.dumps(config))
    assert formats.load("model").text is None
    code, out, err = run("embed", "model", "raw.txt", "a.h5", "--json")
    assert (code, json.loads(out)["num_tokens"]) == (0, len(RAW.split()))
    assert err.startswith(
        "elmo: raw.txt: this looks like raw text, and the model does not say how its training text was"
    )
    assert err.count("\n") == 1
    assert run("embed", "model", "tokenized.txt", "b.h5")[2] == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ([], "expected a mapping of keys, found list"),
        ({"tokenizer": 3}, "text: tokenizer: expected str, found 3"),
        ({"cut": "ptb"}, "text: unknown key 'cut'"),
    ],
)
def test_a_damaged_config_is_refused(run: Run, text: object, says: str) -> None:
    path = Path("model/config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"text": text}))
    code, out, err = run("embed", "model", "raw.txt", "a.h5")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_what_a_model_names_is_not_run(run: Run) -> None:
    model = formats.load("model")
    model.text = TextConfig("os:system", "sentences")
    formats.save_native(model, Path("strange"))
    code, _, err = run("embed", "strange", "raw.txt", "a.h5")
    assert code == 2
    assert "the model names tokenizer os:system, a function from outside of this package; if you trust it" in err


WITH_TOKENIZER = [task for task in TASKS if "tokenizer" in {field.name for field in fields(get_task(task).recipe)}]


@pytest.mark.parametrize("task", WITH_TOKENIZER)
def test_what_a_recipe_names_is_not_run(task: str) -> None:
    """Recipes are in the folders of trained models, which may come from a stranger."""
    with pytest.raises(ElmoError, match=r"the recipe names tokenizer os:system, .*; offer it as an entry point"):
        load_task_recipe(task, None, {"tokenizer": "os:system"})


def test_neighbors_reads_text_and_query_as_the_model(run: Run) -> None:
    for text in ("raw.txt", "tokenized.txt"):
        for query in ("He didn't do it.", "He did n't do it ."):
            code, out, err = run("neighbors", "model", text, "--word", "n't", "--in", query)
            assert (code, err) == (0, "")
            assert out.startswith("He did [n't] do it .\n")
            assert "They did [n't] play ." in out


def test_an_index_is_cut_as_the_model_and_its_queries_as_the_index(run: Run) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    code, out, err = run("index", "model", "raw.txt", "i", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["reading"]["tokenizer"] == "ptb"
    for query in ("He didn't do it.", "He did n't do it ."):
        _, out, _ = run("neighbors", "model", "i", "--word", "n't", "--in", query)
        assert "They did [n't] play .  (raw.txt, line 1)" in out


def test_one_file_among_others_that_is_laid_out_otherwise_gets_a_note(run: Run) -> None:
    Path("scan.txt").write_text("The old mill stood by the river, and nobody had lived\n" * 30)
    says = "elmo: scan.txt: the lines look as if they were wrapped, and each is read as if it ended there; pass --text"
    options = ["--tokenizer", "ptb", "--text", "paragraphs", "--min-count", "1"]
    for command in (
        ["embed", "model", "raw.txt", "scan.txt", "a.h5"],
        ["prepare", "c", "raw.txt", "scan.txt", *options],
    ):
        code, _, err = run(*command)
        assert code == 0
        assert err.startswith(says)
        assert err.count("\n") == 1


def test_a_parquet_file_keeps_files_places_and_ids(run: Run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")
    Path("more.txt").write_text("It's\nraw.\n")
    assert run("embed", "model", "raw.txt", "more.txt", "a.parquet", "--text", "wrapped")[0] == 0
    table = parquet.read_table("a.parquet").to_pydict()
    assert table["file"] == ["raw.txt"] * 3 + ["more.txt"]
    assert table["id"] == [""] * 4
    assert table["sentence"] == [0, 1, 2, 3]
    for name, tokens, starts, ends in zip(table["file"], table["tokens"], table["start"], table["end"], strict=True):
        text = Path(name).read_text()
        assert [text[start:end] for start, end in zip(starts, ends, strict=True)] == tokens
    Path("ids.txt").write_text("p1\tHe came. She left.\np2\tIt's new.\n")
    assert run("embed", "model", "ids.txt", "b.parquet", "--ids", "--pool", "mean")[0] == 0
    table = parquet.read_table("b.parquet").to_pydict()
    assert table["id"] == ["p1", "p1", "p2"]
    assert table["tokens"][2] == ["It", "'s", "new", "."]
    code, _, err = run("embed", "model", "ids.txt", "b.h5", "--ids")
    assert (code, err) == (2, "elmo: --ids: b.h5 can't keep them; name a .parquet file\n")


def test_conllu_is_known_by_its_name(run: Run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")
    words = [("1", "They"), ("2-3", "didn't"), ("2", "did"), ("3", "n't"), ("4", "play"), ("5", ".")]
    lines = "".join(f"{number}\t{word}{chr(9) + '_'}" + "\t_" * 7 + "\n" for number, word in words)
    Path("a.conllu").write_text(f"# sent_id = s-7\n{lines}\n")
    code, out, err = run("embed", "model", "a.conllu", "a.parquet", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["reading"]["text"] == "conllu"
    table = parquet.read_table("a.parquet").to_pydict()
    assert (table["id"], table["tokens"]) == (["s-7"], [["They", "did", "n't", "play", "."]])
    code, _, err = run("embed", "model", "a.conllu", "b.parquet", "--tokenizer", "ptb")
    assert (code, err) == (2, "elmo: tokenizer ptb: the words of CoNLL-U are given; leave out the tokenizer\n")
    assert run("prepare", "corpus", "a.conllu", "--min-count", "1")[1].startswith("corpus: 5 tokens")
    code, out, _ = run("prepare", "lines", "a.conllu", "--text", "sentences", "--tokenizer", "whitespace")
    assert (code, out.startswith("lines: 64 tokens")) == (0, True), "an option takes precedence over the name"


def test_conllu_and_other_files_are_not_read_together(run: Run) -> None:
    Path("a.conllu").write_text("1\tPlay\t" + "\t".join("_" * 8) + "\n\n")
    code, _, err = run("embed", "model", "a.conllu", "raw.txt", "a.h5")
    assert (code, err) == (
        2,
        "elmo: a.conllu is CoNLL-U by its name, and raw.txt is not; read them one after the other, or pass --text if "
        "both have the same layout\n",
    )
    assert not Path("a.h5").exists()


def test_ids_are_no_words_of_the_text(run: Run) -> None:
    """If `--ids` is left out, the ids count as words that the model doesn't know.

    They have spaces here, without which the file would be noticed as a table first.
    """
    path = Path("model/config.json")
    config = json.loads(path.read_text())
    config["text"]["oov_rate"] = 0.0
    path.write_text(json.dumps(config))
    Path("model/vocabulary.txt").write_text("<S>\n</S>\n<UNK>\nThey\nplay\n.\n")
    Path("ids.txt").write_text("".join(f"id {number}\tThey play.\n" for number in range(40)))
    assert run("embed", "model", "ids.txt", "a.parquet", "--ids")[2] == ""
    assert "of the first 200 tokens are not among the model's words" in run("embed", "model", "ids.txt", "b.parquet")[2]


def test_a_tokenizer_may_leave_out_marks(run: Run) -> None:
    Path("letters_only.py").write_text("import re\n\ncut = re.compile(r'\\w+').findall\n")
    code, out, err = run("neighbors", "model", "raw.txt", "--word", "play", "--tokenizer", "letters_only:cut")
    assert (code, err.count("\n")) == (0, 1), err
    assert "[play]" in out


def test_the_beginning_of_a_long_conllu_file_is_looked_at_in_whole_lines(run: Run) -> None:
    """A line that the sample cut off would be refused, like a damaged line, which is refused with its place."""
    line = "1\tword" + "\t_" * 8 + "\n"
    Path("a.conllu").write_text((line + "\n") * (SAMPLE_CHARACTERS // len(line)))
    code, out, err = run("embed", "model", "a.conllu", "a.npz", "--layers", "token", "--json")
    assert code == 0, err
    assert json.loads(out)["num_tokens"] == SAMPLE_CHARACTERS // len(line)
    Path("a.conllu").write_text(f"{line}{line.replace('1', '2', 1)}3\tword\n")
    code, _, err = run("embed", "model", "a.conllu", "b.npz")
    other = "(other files of columns need a recipe that names them, as in columns=[form, xpos])"
    says = rf"2 columns between tabs; CoNLL-U has 10, and the line is '3\tword' {other}"
    assert (code, err) == (2, f"elmo: a.conllu, line 3: {says}\n")


def test_word_vectors_are_of_the_tokens_of_the_model(run: Run) -> None:
    for name in ("raw", "tokenized"):
        code, out, err = run("types", "model", f"{name}.txt", f"of-{name}.txt", "--min-count", "1")
        assert (code, err) == (0, "")
        assert ("; raw text, cut as the model's training text was (tokenizer ptb, paragraphs)\n" in out) == (
            name == "raw"
        )
    assert Path("of-raw.txt").read_text() == Path("of-tokenized.txt").read_text()
    code, out, _ = run("types", "model", "raw.txt", "again.txt", "--min-count", "1", "--json")
    used = json.loads(out)["reading"]
    assert (code, used["tokenizer"], used["text"]) == (0, "ptb", "paragraphs")
    line = "\t".join(("1", "play", *"________")) + "\n"
    Path("a.conllu").write_text(f"{line}\n" * 2)
    assert run("types", "model", "a.conllu", "one.txt", "--min-count", "2")[1].startswith(
        "one.txt: vectors of 1 word, 12 wide, from 2 tokens, "
    )


def test_the_packaged_model_reads_raw_english(run: Run) -> None:
    """Raw text has the perplexity of the same text tokenized beforehand. Text in another language is noticed."""
    found = [run("perplexity", "en", name, "--state", "zero") for name in ("raw.txt", "tokenized.txt")]
    assert [code for code, _, _ in found] == [0, 0]
    one, two = (re.match(r"perplexity [\d.,]+ .* on 16 tokens in 3 sentences", out) for _, out, _ in found)
    assert one is not None
    assert two is not None
    assert one[0] == two[0]
    Path("de.txt").write_text("Das ist ein neues Stück, und sie spielen es nicht mehr.\n" * 20, encoding="utf-8")
    code, _, err = run("embed", "en", "de.txt", "de.h5", "--layers", "token")
    assert code == 0
    assert re.match(
        r"elmo: de.txt: \d\d% of the first 260 tokens are not among the model's words \(\d\.\d% in its training text",
        err,
    )


def test_python_cuts_and_embeds_raw_text() -> None:
    model = package.load("en")
    text = "They didn't play. It's  new.\nNo."
    sentences = [["They", "did", "n't", "play", "."], ["It", "'s", "new", "."], ["No", "."]]
    assert model.tokenize(text) == sentences
    assert model.tokenize("a-b", tokenizer="chars") == [["a", "-", "b"]]
    found = model.embed_text(text, layers="all")
    assert found.tokens == [token for sentence in sentences for token in sentence]
    assert [text[start:end] for start, end in found.spans] == found.tokens
    assert found.sentences == [0] * 5 + [1] * 4 + [2] * 2
    whole = model.embed(sentences, layers="all")
    assert found.vectors.shape == (3, 11, model.width)
    assert (found.vectors[:, 5:9] == whole[1]).all()
    empty = model.embed_text(" \n")
    assert (empty.tokens, empty.spans, empty.vectors.shape) == ([], [], (0, model.width))


def test_python_notices_text_that_the_model_does_not_know(recwarn: pytest.WarningsRecorder) -> None:
    """Only one text is checked, the first that is long enough."""
    german = "Das ist ein neues Stück, und sie spielen es heute nicht mehr."
    model = package.load("en")
    model.embed_text("Sie spielen.")
    assert len(recwarn) == 0, "too short"
    with pytest.warns(UserWarning, match=r"of the first 14 tokens are not among the model's words \(.*\(en\)") as told:
        model.tokenize(german)
    assert (len(told), told[0].filename) == (1, __file__), "it points at the caller"
    model.embed_text(german)
    other = package.load("en")
    other.embed_text("They said that it was a new play, and they did not see it again.")
    assert len(recwarn) == 0


def test_trained_models_know_their_text(run: Run, tmp_path: Path) -> None:
    """A trained model records how its corpus was prepared, and later text is cut in the same way."""
    Path("text.txt").write_text(RAW * 40)
    sizes = ["--set", "lstm.dim=8", "--set", "lstm.projection_dim=4", "--set", "training.batch_size=2"]
    assert run("prepare", "corpus", "text.txt", "--tokenizer", "words", "--text", "paragraphs", "--lowercase")[0] == 0
    code, _, err = run("pretrain", "corpus", "run", "--recipe", "mini", "--max-steps", "1", *sizes)
    assert code == 0, err
    own = formats.load("run").text
    assert own is not None
    assert (own.tokenizer, own.text, own.lowercase, own.language) == ("words", "paragraphs", True, None)
    assert own.oov_rate is not None
    choice = choose_cut(own, RAW)
    assert (choice.reading.tokenizer, choice.reading.lowercase) == ("words", True)
    code, _, err = run("finetune", "run", "tuned", "text.txt", "--batch-size", "2", "--epochs", "0.1")
    assert code == 0, err
    tuned = formats.load("tuned").text
    assert tuned is not None
    assert (tuned.tokenizer, tuned.text, tuned.lowercase) == ("words", "paragraphs", True)
    formats.save_native(formats.load("tuned"), tmp_path / "copy")
    assert formats.load(tmp_path / "copy").text == tuned
    Path("more.txt").write_text(TOKENIZED * 40)
    assert run("finetune", "run", "again", "more.txt", "--batch-size", "2", "--epochs", "0.1")[0] == 0
    again = formats.load("again").text
    assert again is not None
    assert (again.tokenizer, again.text, again.lowercase) == ("words", "paragraphs", True), (
        "tokenized text adds nothing"
    )


@pytest.mark.parametrize(("language", "number"), [("de", 2), ("en", 3)])
def test_text_is_split_by_the_rules_of_its_language(run: Run, language: str, number: int) -> None:
    """The language is that of the option or, without one, that of the model's training text."""
    pytest.importorskip("sentencex", reason="needs the extra 'sentences'")
    german = "Am 3. Mai kam sie an. Er ging.\n"
    Path("german.txt").write_text(german)
    how = ("--tokenizer", "ptb", "--text", "paragraphs", "--language", language, "--json")
    for command in (("embed", "model", "german.txt", "a.h5"), ("prepare", "corpus", "german.txt", "--min-count", "1")):
        code, out, err = run(*command, *how)
        assert (code, json.loads(out)["num_sentences"]) == (0, number), err
    model = package.load("model", device="cpu")
    assert len(model.tokenize(german, language=language)) == number
    assert model.embed_text(german, language=language, layers="token").sentences[-1] == number - 1
    model.text = TextConfig("ptb", "paragraphs", language=language)
    assert len(model.tokenize(german)) == number
