"""Distances between a word's uses in two periods equal those of all pairs, and show which words have changed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import RunMain
from elmo.analysis import change as module
from elmo.analysis.change import ChangeIndex, distances, plot_change
from elmo.analysis.origins import Origins
from elmo.analysis.periods import Periods, find_periods
from elmo.analysis.search import build_index
from elmo.analysis.search import vectors as stored
from elmo.embed.embedder import Embedder
from elmo.errors import ElmoError

pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")

WORDS = ["They", "saw", "a", "new", "old", "in", "the", "of", "drama", "."]
FLOAT16 = 3e-3
"""The tolerance for sums of products of vectors that are stored in float16."""


def units(number: int, seed: int = 0, width: int = 6) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(number, width)) + 0.5
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def pairwise(first: np.ndarray, second: np.ndarray | None = None) -> float:
    """Return the mean cosine distance of all pairs, of one vector from each set or of two vectors from the only set."""
    if second is None:
        return float(np.mean([1 - a @ b for i, a in enumerate(first) for j, b in enumerate(first) if i != j]))
    return float(np.mean([1 - a @ b for a in first for b in second]))


def test_distances_are_those_of_all_pairs() -> None:
    sets = [units(5), units(8, 1), units(3, 2)]
    found = distances(np.stack([one.sum(axis=0) for one in sets]), np.array([5, 8, 3]))
    for i, first in enumerate(sets):
        assert found.apd[i, i] == pytest.approx(pairwise(first))
        assert (found.prt[i, i], found.excess[i, i]) == (0, 0)
        for j, second in enumerate(sets):
            if i != j:
                means = first.mean(axis=0), second.mean(axis=0)
                cosine = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
                assert found.apd[i, j] == pytest.approx(pairwise(first, second))
                assert found.prt[i, j] == pytest.approx(1 - cosine)
                within = (pairwise(first) + pairwise(second)) / 2
                assert found.excess[i, j] == pytest.approx(pairwise(first, second) - within)


def test_an_unchanged_word_has_no_excess_however_rare_it_is() -> None:
    """On average over many draws the excess is zero, although prototypes of few uses are far apart by chance."""
    uses = units(1000)
    random = np.random.default_rng(3)
    found = []
    for _ in range(2000):
        drawn = uses[random.integers(0, len(uses), (2, 4))]
        found.append(distances(drawn.sum(axis=1), np.array([4, 4])))
    assert abs(np.mean([one.excess[0, 1] for one in found])) < 0.005
    assert np.mean([one.prt[0, 1] for one in found]) > 0.05


def test_one_use_has_no_distance_within_its_period() -> None:
    found = distances(np.stack([units(1)[0], units(4, 1).sum(axis=0), np.zeros(6)]), np.array([1, 4, 0]))
    assert np.isnan(found.apd[0, 0])
    assert np.isnan(found.excess[0, 1])
    assert np.isnan(found.excess[0, 0])
    assert np.isfinite(found.apd[0, 1])
    assert np.isnan(found.apd[0, 2])
    assert found.prt[0, 0] == 0
    assert np.isnan(found.prt[2]).all()
    assert np.isnan(found.excess[2]).all()


def sentences(seed: int, changed: bool) -> list[list[str]]:
    """Make sentences with `gay` between words, and sentences of `park` alone, or of `gay` alone if it has changed."""
    random = np.random.default_rng(seed)
    made: list[list[str]] = []
    for number in range(120):
        before, after = random.choice(WORDS, 2).tolist(), random.choice(WORDS, 2).tolist()
        made.append(
            [*before, ["old", "gay", "."][number % 3], *after] if number % 2 else ["gay" if changed else "park"]
        )
    return made


@pytest.fixture(scope="module")
def index(model: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index two texts of the 1840s, one of 1901 and one without a date. In the last two, `gay` replaces `park`."""
    folder = tmp_path_factory.mktemp("index")
    for name, seed, changed in (("a", 0, False), ("b", 1, False), ("c", 2, True), ("d", 3, True)):
        text = "\n".join(map(" ".join, sentences(seed, changed)))
        (folder / f"{name}.txt").write_text(text)
    (folder / "dates.tsv").write_text("file\tyear\tplace\na\t1843\tBath\nb\t1849\tYork\nc\t1901\tBath\nd\t\tBath\n")
    texts = [str(folder / f"{name}.txt") for name in "abcd"]
    build_index(model, texts, folder / "index", layer=1, metadata=folder / "dates.tsv")
    return folder / "index"


def vectors_of(model: Embedder, word: str, seeds: list[int], changed: bool) -> np.ndarray:
    text = [one for seed in seeds for one in sentences(seed, changed)]
    rows = [
        vector
        for tokens, vectors in zip(text, model.embed(text, layers=1), strict=True)
        for token, vector in zip(tokens, vectors, strict=True)
        if token == word
    ]
    return np.stack(rows) / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_word_is_compared_between_periods(model: Embedder, index: Path) -> None:
    """Distances are those of the model's own vectors, and the uses shown are nearest to the mean of their period."""
    early, late = vectors_of(model, "gay", [0, 1], False), vectors_of(model, "gay", [2], True)
    found = ChangeIndex(index, "decade").word("gay", top=2)
    assert [(period.name, period.num_uses) for period in found.periods] == [("1840s", len(early)), ("1900s", len(late))]
    assert found.distances.apd[0, 1] == pytest.approx(pairwise(early, late), abs=FLOAT16)
    assert found.distances.apd[1, 1] == pytest.approx(pairwise(late), abs=FLOAT16)
    for period, own in zip(found.periods, (early, late), strict=True):
        mean = own.mean(axis=0)
        cosines = np.sort(own @ mean / np.linalg.norm(mean))[::-1]
        assert period.uses[0].similarity == pytest.approx(cosines[0], abs=FLOAT16)
        assert all(use.tokens[use.position] == "gay" for use in period.uses)
        assert len({(use.tokens, use.position) for use in period.uses}) == len(period.uses) == 2
    assert {Path(use.origin.file).name for use in found.periods[1].uses if use.origin} == {"c.txt"}
    assert len(found.vectors) == len(found.drawn) == len(early) + len(late)


def test_a_pickle_is_the_same_index(index: Path) -> None:
    here = ChangeIndex(index, "year", dates="year")
    there = pickle.loads(pickle.dumps(here))
    assert there.word("gay").periods == here.word("gay").periods


@pytest.mark.parametrize("word", [None, 1843, ["gay"]])
def test_a_word_that_is_no_string(index: Path, word: Any) -> None:
    with pytest.raises(ElmoError, match="`word`: expected a string, found "):
        ChangeIndex(index, "year").word(word)


def test_an_index_may_be_named_by_way_of_the_home_folder(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(index.parent))
    monkeypatch.setenv("USERPROFILE", str(index.parent))
    there = ChangeIndex(Path("~", index.name), "year")
    monkeypatch.setenv("HOME", str(index))
    monkeypatch.setenv("USERPROFILE", str(index))
    assert pickle.loads(pickle.dumps(there)).periods.names == ("1843", "1849", "1901")


def test_a_change_is_shown_in_one_line(index: Path) -> None:
    found = ChangeIndex(index, "decade").word("gay")
    assert repr(found) == f"WordChange('gay', {sum(period.num_uses for period in found.periods)} uses in 2 periods)"
    assert found != ChangeIndex(index, "decade").word("gay")


def test_few_uses_of_a_period_are_drawn(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are spread over the text of the period."""
    whole = ChangeIndex(index, "decade").word("gay")
    monkeypatch.setattr("elmo.analysis.change.DRAWN_USES", 7)
    found = ChangeIndex(index, "decade").word("gay")
    assert np.bincount(found.drawn).tolist() == [7, 7]
    assert not np.array_equal(found.vectors[:7], whole.vectors[:7]), "the first seven"
    ends = [[np.flatnonzero(one.drawn == period)[[0, -1]] for period in (0, 1)] for one in (whole, found)]
    np.testing.assert_array_equal(found.vectors[ends[1]], whole.vectors[ends[0]])  # the first and the last of each
    assert {*map(bytes, found.vectors)} < {*map(bytes, whole.vectors)}


@pytest.mark.parametrize("measure", ["excess", "prt"])
def test_the_word_that_changed_is_first(index: Path, measure: str) -> None:
    uses = ChangeIndex(index, "year")
    assert uses.periods.names == ("1843", "1849", "1901")
    ranked = uses.rank(("1849", "1901"), min_count=5, measure=measure)
    assert ranked[0].word == "gay"
    assert ranked[0].excess > 3 * ranked[1].excess
    assert {one.word for one in ranked} == {*WORDS, "gay"}  # `park` occurs in only one of the two periods
    values = [getattr(one, measure) for one in ranked]
    assert values == sorted(values, reverse=True)
    by_word = uses.word("gay").distances
    assert ranked[0].apd == pytest.approx(by_word.apd[1, 2])
    assert ranked[0].num_uses == (20, 80)
    assert uses.periods.num_undated == 120


def test_words_can_be_measured_in_turns(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = ChangeIndex(index, "decade")
    whole = uses.rank(min_count=5)
    wrong: Any
    for wrong, shown in (("1840s", "'1840s'"), (("1840s",), r"\('1840s',\)")):
        with pytest.raises(ElmoError, match=f"`between`: expected the names of two periods, found {shown}"):
            uses.rank(wrong, min_count=5)
    with pytest.raises(ElmoError, match="`min_count`: expected a whole number, found '5'"):
        uses.rank(min_count="5")
    monkeypatch.setattr(module, "SUMS_BYTES", 1)
    parts = uses.rank(min_count=5)
    assert [one.word for one in whole] == [one.word for one in parts]
    assert [one.prt for one in whole] == pytest.approx([one.prt for one in parts])


@pytest.mark.parametrize("kind", ["float16", "pq"])
def test_all_stored_vectors_are_read(kind: stored.Kind, tmp_path: Path) -> None:
    """All or some of the vectors are read from several files. Those of product quantization are rounded."""
    vectors = units(900, width=16).astype(np.float32)
    stored.train_index(vectors, kind, len(vectors), tmp_path / "trained")
    for number, (start, end) in enumerate([(0, 400), (400, 900)]):
        part = stored.IndexPart(tmp_path / "trained")
        part.add(vectors[start:end], start)
        part.write(tmp_path / f"part{number}")
    store = stored.VectorStore(tmp_path / "trained", [tmp_path / "part0", tmp_path / "part1"])
    assert store.width == 16
    for among in (None, np.arange(900) % 7 == 0):
        numbers, found = (np.concatenate(part) for part in zip(*store.blocks(among), strict=True))
        wanted = np.arange(900) if among is None else np.flatnonzero(among)
        order = np.argsort(numbers)
        assert numbers[order].tolist() == wanted.tolist()
        cosines = np.einsum("nd,nd->n", found[order], vectors[wanted])
        assert cosines.mean() > (0.9999 if kind == "float16" else 0.9)
    assert list(store.blocks(np.zeros(900, bool))) == []


def origins(*dates: str, column: str = "date") -> Origins:
    """Return the origins of one sentence from each of several files, which have these dates."""
    places = np.array([[number, 1] for number in range(len(dates))], np.int32)
    return Origins([f"{number}.txt" for number in range(len(dates))], places, [column], [[date] for date in dates])


@pytest.mark.parametrize(
    ("dates", "by", "names", "numbers"),
    [
        (["1849-12-31", "May 1850", "1843", "around 1855?"], "decade", ["1840s", "1850s"], [0, 1, 0, 1]),
        (["1849-12-31", "960", "unknown", ""], "century", ["900–999", "1800–1899"], [1, 0, -1, -1]),
        (["1901", "1899", "1901"], "year", ["1899", "1901"], [1, 0, 1]),
        (["-350", "350", "-43", "-0044-03-15"], "year", ["-350", "-44", "350"], [0, 2, -1, 1]),
        (["-350", "-399", "-400", "1-250"], "century", ["-400–-301", "200–299"], [0, 0, 0, 1]),
        (["\u2212350", "350", "\u22120044-03-15"], "year", ["-350", "-44", "350"], [0, 2, 1]),
        (["\u22129", "3", "\u221210"], "date", ["\u221210", "\u22129", "3"], [1, 2, 0]),
        (["1900", "nan", "1843"], "date", ["1843", "1900", "nan"], [1, 2, 0]),
        (["10", "9", "", "10"], "date", ["9", "10"], [1, 0, -1, 1]),
        (["late", "early", "late"], "date", ["early", "late"], [1, 0, 1]),
    ],
)
def test_periods(dates: list[str], by: str, names: list[str], numbers: list[int]) -> None:
    found = find_periods(origins(*dates), by)
    assert (list(found.names), found.of_sentence.tolist()) == (names, numbers)


def test_a_column_of_years_holds_dates() -> None:
    found = find_periods(origins("c. 1843", "1843", "1851-02-03", "900", column="year"), "year")
    assert (found.names, found.of_sentence.tolist()) == (("900", "1843", "1851"), [1, 1, 2, 0])
    found = find_periods(origins("1843", "n.d.", "1902", column="year"), "year")
    assert (found.names, found.of_sentence.tolist()) == (("1843", "1902"), [0, -1, 1])


def test_a_column_goes_before_a_date_unless_one_is_named() -> None:
    table = Origins(
        ["a", "b"], np.array([[0, 1], [1, 1]], np.int32), ["decade", "date"], [["first", "1843"], ["second", "1901"]]
    )
    assert find_periods(table, "decade").names == ("first", "second")
    assert find_periods(table, "decade", "date").names == ("1840s", "1900s")
    assert find_periods(table, "file").names == ("a", "b")


def test_a_file_without_text_makes_no_period() -> None:
    """It would be the first or the last one, between which words are ranked, and no word occurs in it."""
    places = np.array([[1, 1], [1, 2], [2, 1]], np.int32)
    table = Origins([*"abcd"], places, ["year"], [["1700"], ["1843"], ["1901"], ["2000"]])
    found = find_periods(table, "year")
    assert (found.names, found.of_sentence.tolist(), found.pair()) == (("1843", "1901"), [0, 0, 1], (0, 1))
    assert find_periods(table, "file").names == ("b", "c")
    with pytest.raises(ElmoError, match=r"two periods or more are needed, and the .* only 1843"):
        find_periods(Origins([*"abcd"], places[:2], table.columns, [["1700"], ["1843"], ["1901"], ["2000"]]), "year")


def test_dates_are_for_periods_that_need_them() -> None:
    with pytest.raises(ElmoError, match="`dates`: has no effect on periods by author, only on those by year, decade"):
        find_periods(origins("1843", "1901"), "author", "date")


@pytest.mark.parametrize(
    ("found", "by", "says"),
    [
        (
            None,
            "decade",
            "the index has no metadata to divide its text by; build it with a table about its",
        ),
        (origins("1843", "1849"), "decade", "decade: two periods or more are needed, and the .* only 1840s"),
        (origins("?", "-"), "decade", "decade: two periods or more are needed, and the .* has none"),
        (origins("1843", "1849", column="written"), "decade", "named year or date; .*`dates=COLUMN` \\(it has written"),
        (origins("1843", "1849"), "author", "the index has no column 'author'"),
        (
            origins("1843", "1849"),
            "decades",
            "no column 'decades' of metadata; it has file, date, and from a column of dates also",
        ),
    ],
)
def test_texts_without_periods(found: Origins | None, by: str, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        find_periods(found, by)


@pytest.fixture
def run(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_main(["change", str(index), *arguments])


def test_periods_can_be_named_with_a_hyphen() -> None:
    periods = Periods(("1700–1799", "1800–1899", "1800-1899"), np.zeros(0, np.int32))
    assert periods.pair(("1700-1799", "1800–1899")) == periods.pair(("1700–1799", "1800–1899")) == (0, 1)
    assert periods.pair(("1700-1799", "1800-1899")) == (0, 2)
    assert Periods(("\u2212350", "\u2212300"), np.zeros(0, np.int32)).pair(("-300", "\u2212350")) == (1, 0)


def test_the_command_ranks_words(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, error = run("--by", "decade", "--min-count", "5", "--top", "3")
    assert (code, error) == (0, "elmo: 120 sentences belong to no period and are left out\n")
    lines = out.splitlines()
    assert lines[0].split() == ["word", "excess", "apd", "prt", "1840s", "1900s"]
    assert lines[1].split()[0] == "gay"
    assert lines[-1] == "3 of 11 words with 5 uses or more both in 1840s and in 1900s"
    facts = json.loads(run("--by", "decade", "--min-count", "5", "--json")[1])
    assert (facts["between"], facts["num_words"], facts["words"][0]["word"]) == (["1840s", "1900s"], 11, "gay")
    assert facts["num_undated"] == 120
    by_excess = [word["prt"] for word in facts["words"]]
    facts = json.loads(run("--by", "decade", "--min-count", "5", "--measure", "prt", "--json")[1])
    by_prt = [word["prt"] for word in facts["words"]]
    assert by_prt == sorted(by_excess, reverse=True) != by_excess


def test_the_command_shows_a_word(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'elmo-torch[analysis]'")
    code, out, error = run("--by", "year", "--word", "gay", "--picture", "gay.svg")
    assert code == 0, error
    assert "Nearest to the mean of 1901:" in out
    assert "[gay]" in out
    assert "c.txt, line " in out
    assert out.splitlines()[-1].startswith("gay: from 1843 to 1901, excess 0.")
    picture = (tmp_path / "gay.svg").read_text()
    assert "1849" in picture
    assert run("--by", "year", "--word", "mill", "--picture", "gay.svg") == (
        2,
        "",
        "elmo: gay.svg: exists already; name another file\n",
    )
    assert (tmp_path / "gay.svg").read_text() == picture
    facts = json.loads(run("--by", "year", "--word", "gay", "--json")[1])
    assert [period["name"] for period in facts["periods"]] == ["1843", "1849", "1901"]
    assert np.array(facts["prt"]).shape == (3, 3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--by", "decade", "--word", "nowhere"], "'nowhere' occurs in no period, and it takes two"),
        (
            ["--by", "decade", "--word", "Gay"],
            "takes two periods to compare (there is 'gay': write it this way)",
        ),
        (["--by", "decade", "--word", "a park"], "takes two periods to compare (only single words are compared)"),
        (["--by", "decade", "--word", "park"], "'park' occurs only in 1840s, and it takes two periods to compare"),
        (["--by", "decade", "--min-count", "999"], "--min-count: no word has 999 uses both in 1840s and in 1900s"),
        (["--by", "decade", "--between", "1840s", "2000s"], "there is no period '2000s'; there are 1840s, 1900s"),
        (["--by", "decade", "--between", "1840s", "1840s"], "1840s cannot be compared with itself; name two periods"),
        (["--by", "decade", "--picture", "a.png"], "--picture shows the uses of one word; name it with --word"),
        (["--by", "decade", "--word", "gay", "--picture", "a.gif"], "a.gif: pictures end in .png or .svg"),
        (
            ["--by", "place", "--dates", "year"],
            "elmo: --dates: has no effect on periods by place, only on those by year",
        ),
        (["--by", "decade", "--word", "gay", "--min-count", "9"], "--min-count is for the ranking of all words"),
        (
            ["--by", "decade", "--min-count", "1"],
            "--min-count: 1 is too low; the distances within a period are",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    run: Callable[..., tuple[int, str, str]], arguments: list[str], says: str, tmp_path: Path
) -> None:
    code, out, error = run(*arguments)
    assert (code, out) == (2, "")
    assert says in error
    assert error.splitlines()[-1].startswith("elmo: ")
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match="is not an index"):
        ChangeIndex(tmp_path, "decade")


def test_pictures_of_many_periods(index: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'elmo-torch[analysis]'")
    found = ChangeIndex(index, "file").word("gay")
    # A name that matplotlib would take for a formula, and could not read, and that is not UTF-8.
    found = replace(found, periods=[replace(period, name=f"$x^{{$\udce9{period.name}") for period in found.periods])
    plot_change(tmp_path / "gay.png", found)
    assert (tmp_path / "gay.png").stat().st_size > 10_000


def test_the_command_ranks_words_between_two_periods(index: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    wanted = ChangeIndex(index, "year").rank(("1843", "1849"), min_count=5)
    _, out, _ = run("--by", "year", "--between", "1843", "1849", "--min-count", "5", "--top", "99")
    head, *rows, last = out.splitlines()
    assert head.split()[-2:] == ["1843", "1849"]
    assert [row.split()[0] for row in rows] == [one.word for one in wanted]
    assert last == f"{len(wanted)} of {len(wanted)} words with 5 uses or more both in 1843 and in 1849"
    facts = json.loads(run("--by", "year", "--between", "1843", "1849", "--min-count", "5", "--top", "2", "--json")[1])
    assert (facts["between"], len(facts["words"])) == (["1843", "1849"], 2)


def test_the_command_compares_a_period_with_the_previous_one_and_the_first(
    index: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    apd, prt, excess = ChangeIndex(index, "year").word("gay").distances
    lines = run("--by", "year", "--word", "gay")[1].splitlines()

    def figures(first: int, second: int) -> list[str]:
        return [f"{matrix[first, second]:.4f}" for matrix in (excess, apd, prt)]

    assert lines[2].split()[2:] == ["1843", *figures(0, 1)]
    assert lines[3].split()[2:] == ["1849", *figures(1, 2)]
    assert lines[4].split() == ["1843", *figures(0, 2)]
    names = zip(("excess", "apd", "prt"), figures(0, 2), strict=True)
    assert lines[-1] == f"gay: from 1843 to 1901, {', '.join(map(' '.join, names))}"
    assert sum("[gay]" in line for line in lines) == 3 * 3, "three uses of each period"


@pytest.mark.parametrize("option", [["--measure", "prt"], ["--between", "1840s", "1900s"]])
def test_options_of_the_ranking_are_not_for_one_word(
    option: list[str], run: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, error = run("--by", "decade", "--word", "gay", *option)
    assert (code, error) == (2, f"elmo: {option[0]} is for the ranking of all words; leave out --word\n")


def test_equal_sentences_special_words_and_lower_case(model: Embedder, tmp_path: Path) -> None:
    """Of equal sentences the first counts. A word is read as the text was, and tokens that models reserve are none."""
    texts = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    for text in texts:
        Path(text).write_text("They Play <UNK> .\nThey Play <UNK> .\n")
    build_index(model, texts, tmp_path / "index", lowercase=True)
    uses = ChangeIndex(tmp_path / "index", "file")
    found = uses.word("PLAY")
    assert found.word == "play"
    assert [[use.origin.line for use in period.uses if use.origin] for period in found.periods] == [[1], [1]]
    assert {one.word for one in uses.rank(min_count=2)} == {"they", "play", "."}


def test_other_forms_of_a_word_are_named(model: Embedder, tmp_path: Path) -> None:
    """They may be what the other periods have. Forms that look the same are written with escapes."""
    texts = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    Path(texts[0]).write_text("They met Ada in a caf\u00e9 .\n", encoding="utf-8")
    Path(texts[1]).write_text("They met ADA in a cafe\u0301 .\n", encoding="utf-8")
    build_index(model, texts, tmp_path / "index")
    uses = ChangeIndex(tmp_path / "index", "file")
    for word, form in (("Ada", "'ADA'"), ("caf\u00e9", r"'cafe\\u0301'")):
        with pytest.raises(ElmoError, match=rf"takes two periods to compare \(there is also {form}: forms that are to"):
            uses.word(word)


def test_a_picture_has_the_distances_from_the_first_period(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'elmo-torch[analysis]'")
    drawn: list[Any] = []
    draw = module.draw_curves
    monkeypatch.setattr(
        module, "draw_curves", lambda *args, **options: (drawn.append(args[2]), draw(*args, **options))[1]
    )
    found = ChangeIndex(index, "year").word("gay")
    plot_change(tmp_path / "gay.png", found)
    names = [period.name for period in found.periods]
    assert {series.label: series.values for series in drawn[0]} == {
        "prt": dict(zip(names, found.distances.prt[0].tolist(), strict=True)),
        "excess": dict(zip(names, found.distances.excess[0].tolist(), strict=True)),
    }
