"""Vectors of types are the means of their uses, senses are groups of uses, and gensim reads and tests what we write."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridge import make_model
from commands import RunMain
from elmo.analysis import word_vectors as module
from elmo.analysis.clusters import cluster, cluster_as_needed, mean_silhouette
from elmo.analysis.vectors import add_to_rows, unit
from elmo.analysis.word_tests import evaluate_analogies, evaluate_similarity, load_word_vectors
from elmo.analysis.word_vectors import type_vectors
from elmo.config import TextConfig
from elmo.embed.embedder import Embedder
from elmo.errors import ElmoError
from elmo.formats.word_vectors import write_word_vectors
from elmo.targets import unfinished_folder
from elmo.tasks.common.static_vectors import read_vectors
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare

WORDS = ["They", "saw", "a", "new", "play", "in", "the", "park", "drama", "."]

ROUNDING = 2e-6
"""The tolerance for means of float32 vectors that were computed in different batches."""


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    random = np.random.default_rng(0)
    return [[*random.choice(WORDS, random.integers(1, 9)).tolist(), f"once{number}"] for number in range(90)]


@pytest.fixture(scope="module")
def corpus(sentences: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text.txt").write_text("\n".join(map(" ".join, sentences)))
    return prepare([folder / "text.txt"], folder / "corpus", min_count=1, workers=1)


def test_capitals_for_a_lower_case_model_are_announced(corpus: Corpus, tmp_path: Path) -> None:
    model = Embedder(make_model().copy_with(text=TextConfig(lowercase=True)))
    with pytest.warns(UserWarning, match="has words with capitals, but the model was trained on lower-case text"):
        type_vectors(model, corpus, min_count=2)
    (tmp_path / "lower.txt").write_text("they saw a play .\n" * 3)
    type_vectors(model, prepare([tmp_path / "lower.txt"], tmp_path / "lower", min_count=1, workers=1), min_count=2)


@pytest.mark.parametrize("layer", [1, "mean", "token"])
def test_a_type_has_the_mean_of_its_uses(
    model: Embedder, corpus: Corpus, sentences: list[list[str]], layer: int | str
) -> None:
    uses: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for tokens, vectors in zip(sentences, model.embed(sentences, layers=layer), strict=True):
        for token, vector in zip(tokens, vectors, strict=True):
            uses[token].append(vector)
    found = type_vectors(model, corpus, layer=layer, min_count=2)
    assert set(found.names) == set(WORDS)
    assert found.counts == [len(uses[name]) for name in found.names]
    assert all(a >= b for a, b in pairwise(found.counts))
    wanted = [np.mean(uses[name], axis=0) for name in found.names]
    np.testing.assert_allclose(found.vectors, wanted, atol=ROUNDING, rtol=0)


def test_rows_are_added_up() -> None:
    random = np.random.default_rng(0)
    rows, vectors = random.integers(-1, 5, 200), random.normal(size=(200, 3)).astype(np.float32)
    sums, wanted = np.ones((6, 3)), np.ones((6, 3))
    add_to_rows(sums, rows, vectors)
    np.add.at(wanted, rows[rows >= 0], vectors[rows >= 0].astype(np.float64))
    np.testing.assert_allclose(sums, wanted, rtol=1e-12)
    add_to_rows(sums, np.full(2, -1), vectors[:2])
    np.testing.assert_allclose(sums, wanted, rtol=1e-12)


def test_senses(model: Embedder, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of the senses add up to that of the word, and the weighted mean of their directions points where the uses
    point. A word with one use has one sense."""
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    plain = type_vectors(model, corpus, layer=1, min_count=1)
    found = type_vectors(model, corpus, layer=1, min_count=1, senses=2)
    assert all(a >= b for a, b in pairwise(found.counts))
    for word, count in zip(plain.names, plain.counts, strict=True):
        own = [number for number, name in enumerate(found.names) if name.split("#")[0] == word]
        names = [found.names[number] for number in own]
        assert names == ([word] if word.startswith("once") else [f"{word}#1", f"{word}#2"])
        assert abs(sum(found.counts[number] for number in own) - count) <= 1  # the count of each sense is rounded
        whole = plain.vectors[plain.names.index(word)]
        np.testing.assert_allclose(np.linalg.norm(found.vectors[own], axis=1), np.linalg.norm(whole), rtol=1e-4)
        together = np.array(found.counts)[own] @ found.vectors[own]
        # Not exactly, since the vectors of senses have the same length, however far apart the uses of each are.
        assert together @ whole / np.linalg.norm(together) / np.linalg.norm(whole) > 0.99
    again = type_vectors(model, corpus, layer=1, min_count=1, senses=2)
    assert again.names == found.names
    assert np.array_equal(again.vectors, found.vectors)
    monkeypatch.setattr(module, "LEAST_SILHOUETTE", 1.1)  # no grouping can have a silhouette above 1
    single = type_vectors(model, corpus, layer=1, min_count=2, senses="auto")
    assert sorted(single.names) == sorted(WORDS)


def test_senses_of_a_word_with_many_uses(model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its uses are drawn from all over the text, and those of one word are kept apart from those of the others."""
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    monkeypatch.setattr(module, "MAX_CLUSTERED_USES", 10)
    lines = [["They", "saw", "a", "play"], ["drama", ",", "play", "new", "in", "the", "park"]]
    (tmp_path / "text.txt").write_text("\n".join(" ".join(line) for line in lines for _ in range(30)))
    corpus = prepare([tmp_path / "text.txt"], tmp_path / "corpus", min_count=1, workers=1)
    found = type_vectors(model, corpus, layer=1, min_count=2, senses=2)
    uses: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for tokens, vectors in zip(lines, model.embed(lines, layers=1), strict=True):
        for token, vector in zip(tokens, vectors, strict=True):
            uses[token].append(vector / np.linalg.norm(vector))
    nearest: defaultdict[str, set[int]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for name, vector, count in zip(*found, strict=True):
        word = name.split("#")[0]
        cosines = np.stack(uses[word]) @ vector / np.linalg.norm(vector)
        assert cosines.max() > 0.9999, name
        nearest[word].add(int(cosines.argmax()))
        counts[word] += count
    assert {"play#1", "play#2"} <= {*found.names}
    assert nearest["play"] == {0, 1}
    # The count of each sense is rounded.
    assert dict(counts) == {word: pytest.approx(60 if word == "play" else 30, abs=1) for word in uses}


def test_senses_need_no_vectors_on_disk(model: Embedder, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, faiss has no index on disk, but it can find groups."""
    faiss = pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    monkeypatch.delattr(faiss, "OnDiskInvertedLists")
    assert any("#2" in name for name in type_vectors(model, corpus, layer=1, min_count=1, senses=2).names)


def test_senses_take_their_room_on_the_disk_first(
    model_folder: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """So a full disk ends the command before it embeds the text. What a kill leaves is where the next run tidies up."""
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    windows, seen = Embedder.windows, list[Path]()

    def look(*args: Any, **options: Any) -> Any:
        seen.extend(tmp_path.rglob("uses.bin"))
        if sys.platform != "win32":  # which doesn't say how much of a file is on the disk
            assert all(path.stat().st_blocks * 512 >= path.stat().st_size > 8192 for path in seen)
        return windows(*args, **options)

    monkeypatch.setattr(Embedder, "windows", look)
    out = tmp_path / "senses.txt"
    code, _, error = run_main(
        ["types", str(model_folder), str(corpus.folder), str(out), "--senses", "2", "--min-count", "1"]
    )
    assert code == 0, error
    assert [path.relative_to(tmp_path).parts[0] for path in seen] == [".senses.txt.unfinished"]
    assert list(tmp_path.iterdir()) == [out]


def test_a_word_that_is_named_like_a_sense(model: Embedder, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    (tmp_path / "text.txt").write_text("we play .\n" * 3 + "they saw play#1 .\n" + "the new play was new .\n" * 3)
    corpus = prepare([tmp_path / "text.txt"], tmp_path / "corpus", min_count=1)
    with pytest.raises(ElmoError, match="`senses`: 'play#1' would be the name of a sense, but is a word of the text"):
        type_vectors(model, corpus, layer=1, min_count=1, senses=2)


def directions(centers: list[list[float]], spread: float, size: int = 40) -> np.ndarray:
    """Return points on the unit sphere, `size` of them around each center."""
    random = np.random.default_rng(0)
    points = np.concatenate([np.array(center) + spread * random.normal(size=(size, 3)) for center in centers])
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("number", "most"), [(1, 5), (2, 5), (3, 5), (3, 3)])
def test_as_many_groups_as_needed(number: int, most: int) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    units = directions(np.eye(3)[:number].tolist(), 0.1)
    groups = cluster_as_needed(units, most, 0.6)
    assert len(set(groups.tolist())) == number
    assert all(len(set(part.tolist())) == 1 for part in np.split(groups, number))


def test_groups_need_no_more_than_the_least_silhouette() -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    units = directions([[1, 0, 0], [0, 1, 0]], 0.3)
    least = mean_silhouette(units, cluster(units, 2))
    assert cluster_as_needed(units, 2, least).any()
    assert not cluster_as_needed(units, 2, least + 1e-6).any()


def test_rounding_separates_no_groups() -> None:
    """The uses of a word in equal sentences differ by rounding alone, of vectors in float16 here."""
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    random = np.random.default_rng(0)
    for size in (1e-6, 1e-5, 1e-4):
        uses = (random.normal(size=256) + size * random.normal(size=(60, 256))).astype(np.float16).astype(np.float32)
        units = unit(uses)
        for number in range(2, 6):
            assert mean_silhouette(units, cluster(units, number)) == pytest.approx(0, abs=0.1)
        assert not cluster_as_needed(units, 5, 0.1).any()


def test_silhouettes_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="needs scikit-learn: pip install 'elmo-torch[sklearn]'")
    units = directions([[1, 0, 0], [0, 1, 0]], 0.5)
    groups = np.random.default_rng(1).integers(0, 4, len(units))
    groups[0] = 5  # this vector is alone in its group, and group 4 is empty
    wanted = metrics.silhouette_score(units, groups, metric="cosine")
    assert mean_silhouette(units, groups) == pytest.approx(wanted, abs=1e-5)
    assert mean_silhouette(units, np.zeros(len(units), np.int64)) == 0


def test_gensim_reads_what_we_write(tmp_path: Path) -> None:
    gensim = pytest.importorskip("gensim", reason="needs the extra 'static'")
    words, vectors = ["naïve", "b", "c"], np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    write_word_vectors(tmp_path / "words.kv", words, vectors, [9, 8, 7])
    write_word_vectors(tmp_path / "words.txt", words, vectors, [9, 8, 7])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["words.kv", "words.txt"]
    keyed = gensim.models.KeyedVectors.load(str(tmp_path / "words.kv"))
    assert keyed.index_to_key == words
    assert np.array_equal(keyed.vectors, vectors)
    assert [keyed.get_vecattr(word, "count") for word in words] == [9, 8, 7]
    text = gensim.models.KeyedVectors.load_word2vec_format(str(tmp_path / "words.txt"))
    assert text.index_to_key == words
    np.testing.assert_allclose(text.vectors, vectors, rtol=1e-4)  # the text has five digits
    assert read_vectors(tmp_path / "words.txt").words == words


def test_large_vectors_are_in_the_one_file_too(tmp_path: Path) -> None:
    """By default, gensim puts eleven million numbers into a file of their own, named after one that is not complete."""
    gensim = pytest.importorskip("gensim", reason="needs the extra 'static'")
    write_word_vectors(tmp_path / "words.kv", ["a"], np.ones((1, 11 << 20), np.float32))
    assert [path.name for path in tmp_path.iterdir()] == ["words.kv"]
    assert gensim.models.KeyedVectors.load(str(tmp_path / "words.kv"))["a"].all()


def test_scores_of_word_pairs_and_analogies_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    """Correlations and accuracy are right for small files that can be checked by hand."""
    pytest.importorskip("gensim", reason="needs the extra 'static'")
    angles = {"a": 0, "b": 10, "c": 30, "d": 90, "e": 100}
    vectors = np.array(
        [[np.cos(np.radians(angle)), np.sin(np.radians(angle))] for angle in angles.values()], np.float32
    )
    write_word_vectors(tmp_path / "words.kv", list(angles), vectors)
    keyed = load_word_vectors(tmp_path / "words.kv")
    (tmp_path / "pairs.tsv").write_text("# word pairs\na\tb\t9\na\tC\t8\nd\ta\t9.5\na\te\t1\na\tunknown\t3\n")
    # The order by cosine is ab, ac, ad, ae, and by people ad, ab, ac, ae: 1 - 6 (1 + 1 + 4) / (4 (16 - 1)) = 0.4.
    found = evaluate_similarity(keyed, tmp_path / "pairs.tsv")
    assert found.spearman == pytest.approx(0.4)
    cosines = np.cos(np.radians([10, 30, 90, 100]))
    assert found.pearson == pytest.approx(np.corrcoef(cosines, [9, 8, 9.5, 1])[0, 1])
    assert found.share_unknown == pytest.approx(1 / 5)
    (tmp_path / "pairs.csv").write_text((tmp_path / "pairs.tsv").read_text().replace("\t", ","))
    assert evaluate_similarity(keyed, tmp_path / "pairs.csv") == found
    (tmp_path / "pairs.CSV.gz").write_bytes(gzip.compress((tmp_path / "pairs.csv").read_bytes()))
    assert evaluate_similarity(keyed, tmp_path / "pairs.CSV.gz") == found
    (tmp_path / "pairs.csv").write_text((tmp_path / "pairs.csv").read_text()[13:], encoding="utf-8-sig")
    assert evaluate_similarity(keyed, tmp_path / "pairs.csv") == found
    (tmp_path / "analogies.txt").write_text(": tens\na b d e\n: wrong\na b d c\na b unknown c\n: none\nx y z a\n")
    solved = evaluate_analogies(keyed, tmp_path / "analogies.txt")
    assert (solved.accuracy, solved.num_tested, solved.sections) == (0.5, 2, {"tens": 1.0, "wrong": 0.0})
    (tmp_path / "analogies.txt").write_text((tmp_path / "analogies.txt").read_text(), encoding="utf-8-sig")
    assert evaluate_analogies(keyed, tmp_path / "analogies.txt") == solved
    (tmp_path / "analogies.txt").write_text(": tens\na b d e\n: wrong\na b d c\n: tens\na b d c\n")
    solved = evaluate_analogies(keyed, tmp_path / "analogies.txt")
    assert (solved.num_tested, solved.sections) == (3, {"tens": 0.5, "wrong": 0.0}), "two sections have one name"
    assert solved.accuracy == pytest.approx(1 / 3)


@pytest.mark.slow
def test_all_of_many_words_are_tested(tmp_path: Path) -> None:
    """By default gensim leaves out all but the first 300,000."""
    gensim = pytest.importorskip("gensim", reason="needs the extra 'static'")
    keyed = gensim.models.KeyedVectors(2)
    keyed.add_vectors([f"w{number}" for number in range(300_010)], np.random.default_rng(0).normal(size=(300_010, 2)))
    (tmp_path / "pairs.tsv").write_text("w1\tw2\t1\nw3\tw300005\t2\nw5\tw300006\t3\n")
    assert evaluate_similarity(keyed, tmp_path / "pairs.tsv").share_unknown == 0
    (tmp_path / "analogies.txt").write_text(": all\nw1 w2 w3 w4\nw1 w2 w3 w300005\n")
    assert evaluate_analogies(keyed, tmp_path / "analogies.txt").num_tested == 2


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("analogies", "a b c d\n", "expected four words on each line, and a line such as ': capitals'"),
        ("analogies", ": x\nq r s t\n", "none of its analogies has vectors for all four words"),
        ("analogies", "", "expected four words on each line"),
        ("similarity", "a b 3\n", "fewer than two of its pairs have vectors; expected two words and a number"),
        ("similarity", "a\tb\t3\n", "fewer than two of its pairs have vectors"),
        ("similarity", "a\tb\t5\na\tc\t5\n", "its similarities, or the cosines of its pairs, are all the same"),
    ],
)
def test_files_that_test_nothing(name: str, content: str, says: str, tmp_path: Path) -> None:
    pytest.importorskip("gensim", reason="needs the extra 'static'")
    write_word_vectors(tmp_path / "words.txt", list("abcd"), np.eye(4, dtype=np.float32))
    keyed = load_word_vectors(tmp_path / "words.txt")
    (tmp_path / "file").write_text(content)
    evaluate = evaluate_analogies if name == "analogies" else evaluate_similarity
    with pytest.raises(ElmoError, match=says):
        evaluate(keyed, tmp_path / "file")


def test_word_tests_are_utf_8(tmp_path: Path) -> None:
    pytest.importorskip("gensim", reason="needs the extra 'static'")
    write_word_vectors(tmp_path / "words.txt", list("abcd"), np.eye(4, dtype=np.float32))
    (tmp_path / "file").write_bytes("a\tb\t1\nc\td\t2\ncafé\ta\t3\n".encode("latin-1"))
    with pytest.raises(ElmoError, match="file, line 3: "):
        evaluate_similarity(load_word_vectors(tmp_path / "words.txt"), tmp_path / "file")


def test_text_that_is_named_as_a_pickle(tmp_path: Path) -> None:
    pytest.importorskip("gensim", reason="needs the extra 'static'")
    (tmp_path / "text.kv").write_text("cat 1 2\n")
    with pytest.raises(ElmoError, match=r"text\.kv: holds no word vectors that gensim can read"):
        load_word_vectors(tmp_path / "text.kv")


def test_the_command(
    model_folder: Path,
    corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_main: RunMain,
) -> None:
    """A corpus and its text give the same vectors, which the user's files test. No other file is left behind."""
    pytest.importorskip("gensim", reason="needs the extra 'static'")
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("saw\tplay\t9\nnew\tpark\t8\nthe\tin\t1\n")
    (tmp_path / "four.txt").write_text(": x\nsaw play new park\n")
    tests = ["--similarity", "pairs.tsv", "--analogies", "four.txt"]
    common = ["types", str(model_folder), str(corpus.folder)]
    code, out, error = run_main([*common, "a.txt", "--layer", "1", *tests])
    assert code == 0, error
    first, second, last = out.splitlines()
    assert first.startswith("pairs.tsv: Spearman ")
    assert second.endswith("% of 1 analogies solved")
    assert last.startswith(f"a.txt: vectors of 10 words, 12 wide, from {corpus.num_tokens} tokens, ")
    text = str(corpus.folder.parent / "text.txt")
    assert run_main(["types", str(model_folder), text, "b.txt", "--layer", "1"])[0] == 0
    assert (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text()
    assert run_main([*common, "d.txt", "--layer", "1", "--precision", "bf16"])[0] == 0
    assert (tmp_path / "d.txt").read_text() != (tmp_path / "a.txt").read_text()
    code, out, error = run_main([*common, "c.kv", "--senses", "2", "--json"])
    assert code == 0, error
    assert json.loads(out)["num_vectors"] == 20
    assert load_word_vectors("c.kv").index_to_key[0][-2:] in ("#1", "#2")
    code, _, error = run_main([*common, "e.kv", "--similarity", "four.txt"])
    assert code == 2
    assert error.startswith("elmo: four.txt: ")
    assert error.endswith(" (the vectors are in e.kv)\n")
    made = {"a.txt", "b.txt", "c.kv", "d.txt", "e.kv", "pairs.tsv", "four.txt"}
    assert {path.name for path in tmp_path.iterdir()} == made


def test_the_command_finds_a_corpus_under_the_home_folder(
    model_folder: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.setenv("HOME", str(corpus.folder.parent))
    monkeypatch.setenv("USERPROFILE", str(corpus.folder.parent))
    name = f"~/{corpus.folder.name}"
    code, out, error = run_main(["types", str(model_folder), name, str(tmp_path / "a.txt")])
    assert (code, error) == (0, "")
    assert f"from {corpus.num_tokens} tokens" in out
    code, _, error = run_main(["types", str(model_folder), name, str(tmp_path / "b.txt"), "--lowercase"])
    assert (code, error) == (2, f"elmo: {name}: is a corpus, whose text is already tokenized; leave out --lowercase\n")


@pytest.mark.parametrize("name", ["words.txt", "words.kv"])
def test_a_file_that_was_made_meanwhile_is_kept(name: str, tmp_path: Path) -> None:
    """The vectors may have taken hours, so they are not lost either."""
    pytest.importorskip("gensim", reason="needs the extra 'static'")
    path, other = tmp_path / name, tmp_path / name.replace(".", "-3.")
    for taken in (path, tmp_path / name.replace(".", "-2.")):
        taken.write_text("precious")
    with pytest.raises(
        ElmoError, match=rf"{name}: was created by another program in the meantime; the vectors are in .*{other.name}$"
    ):
        write_word_vectors(path, list("ab"), np.eye(2, dtype=np.float32))
    assert path.read_text() == "precious"
    assert load_word_vectors(str(other)).index_to_key == ["a", "b"]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_path_in_place_of_a_corpus_is_refused(model: Embedder) -> None:
    with pytest.raises(ElmoError, match=r"^`corpus`: expected what Corpus\.open returns, found str$"):
        type_vectors(model, "corpus")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("number", ["many", "0", "-1", "1.5"])
def test_the_number_of_senses_is_auto_or_positive(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = run_main(["types", "model", "text", "out.txt", "--senses", number])
    assert code == 2
    assert f"'--senses': '{number}' is neither auto nor a number from 1 on." in error


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked on Windows")
@pytest.mark.parametrize("command", ["types", "static"])
def test_only_one_process_writes_a_file(
    command: str,
    model_folder: Path,
    corpus: Corpus,
    tmp_path: Path,
    run_main: RunMain,
) -> None:
    pytest.importorskip("gensim", reason="needs the extra 'static'")
    out = tmp_path / "out.txt"
    model = [str(model_folder)] if command == "types" else []
    with unfinished_folder(tmp_path / ".out.txt.unfinished", out, lambda: False):
        code, _, error = run_main([command, *model, str(corpus.folder), str(out)])
    assert code == 2
    assert error == f"elmo: {out}: another process is writing it; wait for that one, or end it\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a.txt", "--min-count", "9999"], "--min-count: no word of the text occurs 9999 times; choose a lower number"),
        (["a.txt", "--similarity", "none.tsv"], "none.tsv: no such file"),
        (["a.txt", "--similarity", "there.txt", "--senses", "2"], "--similarity and --analogies compare words, and"),
        (["there.txt"], "there.txt: exists already; name another file"),
        (["words.h5"], "words.h5: word vectors are text (.txt or .vec) or gensim's (.kv); name such a file"),
        (["words.csv"], "words.csv: word vectors are text (.txt or .vec) or gensim's (.kv); name such a file"),
        (["a.txt", "--lowercase"], "is a corpus, whose text is already tokenized; leave out --lowercase"),
        (["a.txt", "--layer", "all"], "all"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    says: str,
    model_folder: Path,
    corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_main: RunMain,
) -> None:
    pytest.importorskip("gensim", reason="needs the extra 'static'")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.txt").write_text("")
    code, out, error = run_main(["types", str(model_folder), str(corpus.folder), *arguments])
    assert (code, out) == (2, "")
    assert says in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there.txt"]
