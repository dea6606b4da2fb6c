"""These tests cover what all of the paper's analyses share, and the analyses that need only vectors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridge import make_model
from elmo.analysis.paper import published, representations
from elmo.analysis.paper.finding import (
    Finding,
    Table,
    as_markdown,
    draw_panels,
    join_findings,
    once,
    read_finding,
    series_of,
    table_markdown,
    write_finding,
)
from elmo.analysis.pictures import draw_shares, new_figure, save_figure
from elmo.analysis.pos import most_frequent_tag, probe_pos
from elmo.analysis.senses import gather_uses, separation
from elmo.analysis.tagged import read_conll2000
from elmo.analysis.wsd import Score, evaluate_wsd
from elmo.analysis.wsd_data import Annotated, Instance, Target
from elmo.embed import Embedder
from elmo.errors import ElmoError
from elmo.tasks.common.static_vectors import StaticVectors
from elmo.text.columns import Tagged
from terminal import Terminal

TABLE = Table(
    "Scores",
    "F1 (%)",
    ["a", "b|c"],
    {"x": {"a": 1.25, "b|c": "never"}, "y|z": {"b|c": 1000.0}},
    {"x": {"a": 2.0}},
    {"x": {"a": 0.5}},
)
FINDING = Finding("layers", "A title", "m", False, [TABLE], {"x": 90.0})


# --- findings


def test_markdown_has_the_papers_figures_above_ours() -> None:
    """Only our figures have a deviation. A missing column stays empty, and a bar in a name does not end its cell."""
    assert as_markdown(FINDING).splitlines() == [
        "# A title",
        "",
        "Model: m. 1.5 minutes of computing.",
        "",
        "## Scores",
        "",
        "| F1 (%) | | a | b\\|c |",
        "|---|---|---|---|",
        "| x | paper | 2.0 |  |",
        "| x | here | 1.2 ± 0.5 | never |",
        "| y\\|z | here |  | 1,000.0 |",
    ]


def test_tables_5_and_6_show_what_the_paper_compares_with() -> None:
    """Figures of other encoders are shown under their layers, and those of whole systems in a column of their own."""
    columns = ["layer 1", "layer 2", published.SPECIAL]
    senses = table_markdown(Table("Table 5", "F1 (%)", columns, {}, published.SENSES))
    tags = table_markdown(Table("Table 6", "accuracy (%)", columns, {}, published.TAGS, digits=2))
    assert "| four test sets, CoVe | paper | 59.4 | 64.7 |  |" in senses.splitlines()
    assert "| four test sets, Raganato et al. 2017 | paper |  |  | 69.9 |" in senses.splitlines()
    assert "| four test sets, Iacobacci et al. 2016 | paper |  |  | 70.1 |" in senses.splitlines()
    assert "| Penn Treebank, CoVe | paper | 93.3 | 92.8 |  |" in tags.splitlines()
    for system, accuracy in (("Collobert et al. 2011", 97.3), ("Ma and Hovy 2016", 97.6), ("Ling et al. 2015", 97.8)):
        assert f"| Penn Treebank, {system} | paper |  |  | {accuracy} |" in tags.splitlines()


def test_findings_are_read_back_and_pictures_are_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("one", "two"):
        paths = write_finding(tmp_path / name, FINDING, lambda figure, finding: draw_panels(figure, finding.tables[0]))
        assert [path.name for path in paths] == ["layers.json", "layers.md", "layers.png", "layers.svg"]
    assert read_finding(tmp_path / "one", "layers") == FINDING
    for ending in ("png", "svg"):
        assert len({(tmp_path / name / f"layers.{ending}").read_bytes() for name in ("one", "two")}) == 1


def test_a_failed_picture_leaves_no_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    def fail(*_: object) -> None:
        raise ElmoError("no picture")

    with pytest.raises(ElmoError, match="no picture"):
        write_finding(tmp_path / "out", FINDING, fail)
    assert not (tmp_path / "out").exists()


def test_other_json_is_no_finding(tmp_path: Path) -> None:
    for content in ('{"title": "x"}', "null", '"abc"', "[]"):
        (tmp_path / "pos.json").write_text(content)
        with pytest.raises(ElmoError, match=r"pos\.json: holds no finding of elmo analyze; run elmo analyze pos again"):
            read_finding(tmp_path, "pos")
        with pytest.raises(ElmoError, match=r"pos\.json: holds no result of elmo analyze; remove it"):
            once(tmp_path / "pos.json", {}, lambda: 1)


def test_findings_of_several_tasks_become_one() -> None:
    """Tables of one task each come before the common one. If two findings have the same task, the later one counts."""
    ner = Table("Best", "dev score (%): NER F1, SRL F1", ["a"], {"NER": {"a": 1.0}, "SRL": {"a": 2.0}})
    ner = replace(ner, spread={"NER": {"a": 0.5}, "SRL": {"a": 8.0}})
    sst = Table("Best", "dev score (%): SST accuracy, SRL F1", ["a"], {"SST": {"a": 3.0}, "SRL": {"a": 4.0}})
    one = Finding("efficiency", "x", "m", False, [Table("NER", "F1", ["1 %"], {}), ner], {"NER": 1.0, "SRL": 2.0})
    other = Finding("efficiency", "x", "m", False, [Table("SST", "%", ["2 %"], {}), sst], {"SST": 3.0, "SRL": 4.0})
    joined = join_findings(one, other)
    assert [table.title for table in joined.tables] == ["NER", "SST", "Best"]
    best = joined.tables[-1]
    assert best.here == {"NER": {"a": 1.0}, "SRL": {"a": 4.0}, "SST": {"a": 3.0}}
    assert best.spread == {"NER": {"a": 0.5}}  # SRL has no deviation, since its later scores are of one seed
    assert best.unit == "dev score (%): NER F1, SRL F1, SST accuracy"
    assert joined.seconds == {"NER": 1.0, "SRL": 4.0, "SST": 3.0}


def test_joined_columns_are_those_of_rows_that_are_left() -> None:
    """A column whose rows were all replaced is dropped. New rows may have other columns, such as other shares."""
    table = Table("NER", "F1", ["1 %, 3", "all"], {"with": {"1 %, 3": 1.0, "all": 2.0}}, paper={"p": {"all": 3.0}})
    again = replace(table, columns=["1 %, 4"], here={"with": {"1 %, 4": 1.5}}, paper={})
    one = Finding("efficiency", "x", "m", False, [table], {})
    (joined,) = join_findings(one, replace(one, tables=[again])).tables
    assert (joined.columns, joined.here) == (["all", "1 %, 4"], {"with": {"1 %, 4": 1.5}})
    more = replace(table, columns=["0.1 %", "1 %, 3", "all"], here={"with": {"0.1 %": 0.5, "1 %, 3": 1.0, "all": 2.0}})
    (joined,) = join_findings(one, replace(one, tables=[more])).tables
    assert joined.columns == ["0.1 %", "1 %, 3", "all"], "in the order of shares"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "en"}, "layers: its model is en, but that of the finding to join it to is m"),
        ({"name": "pos"}, "pos: its name is pos, but that of the finding to join it to is layers"),
        ({"quick": True}, "layers: quick results can't be joined to full ones"),
    ],
)
def test_findings_of_different_things_are_not_joined(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=f"^{says}$"):
        join_findings(FINDING, replace(FINDING, **changes))


def test_a_missing_matplotlib_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ElmoError, match=r"a picture needs matplotlib, which is not installed: pip install 'elmo-torch\[analysis\]'"
    ):
        new_figure()


def test_parts_are_found_once(tmp_path: Path) -> None:
    """Parts are computed again if what they depend on has changed. A failure is not kept."""
    path, calls = tmp_path / "parts" / "x.json", []

    def compute() -> list[int]:
        calls.append(1)
        return [len(calls)]

    first = once(path, {"model": "a"}, compute)
    assert first.value == [1]
    assert once(path, {"model": "a"}, compute) == first
    assert once(path, {"model": "b"}, compute).value == [2]
    with pytest.raises(ZeroDivisionError):
        once(tmp_path / "y.json", {}, lambda: 1 / 0)
    assert not (tmp_path / "y.json").exists()


# --- pictures


def test_panels_show_the_paper_above_and_ours_below() -> None:
    pytest.importorskip("matplotlib")
    figure = new_figure()
    draw_panels(figure, replace(TABLE, unit="F1 (%): x entity F1, y|z chunk F1"))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["x, paper", "x", "y|z"]
    assert figure.axes[1].get_ylabel() == "F1 (%)"
    assert [tick.get_text() for tick in figure.axes[1].get_xticklabels()] == ["a"]  # "b" has no number
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == ["2.0", "1.2", "1,000.0"]
    published_line, own, _ = series_of(TABLE)
    assert (published_line.is_published, own.is_published, own.spread) == (True, False, {"a": 0.5})


def test_a_row_has_at_most_three_panels() -> None:
    """The paper's two tasks have a row of their own, and our four tasks take two rows."""
    pytest.importorskip("matplotlib")
    figure = new_figure()
    scores: dict[str, dict[str, float | str]] = {name: {"a": 1.0} for name in "stuv"}
    draw_panels(figure, Table("Scores", "F1 (%)", ["a"], scores, {"s": {"a": 2.0}, "t": {"a": 3.0}}))
    places = [(*axes.get_subplotspec().get_geometry()[:3], axes.get_title()) for axes in figure.axes]
    assert places == [
        (3, 3, 0, "s, paper"),
        (3, 3, 1, "t, paper"),
        (3, 3, 3, "s"),
        (3, 3, 4, "t"),
        (3, 3, 5, "u"),
        (3, 3, 6, "v"),
    ]


def test_shares_are_hatched_as_in_the_papers_figure(tmp_path: Path) -> None:
    """There are lines below 1/3, dots above 2/3, and nothing in between."""
    pytest.importorskip("matplotlib")
    figure = new_figure()
    axes = figure.add_subplot()
    draw_shares(axes, {"x": {"a": 0.7, "b": 0.3}, "y": {"a": 0.5, "b": 0.5}}, "share")
    assert [patch.get_hatch() for patch in axes.patches] == ["..", None, "--", None]
    assert [patch.get_x() for patch in axes.patches] == pytest.approx([0, 0, 0.7, 0.5])
    save_figure(figure, tmp_path / "x", "svg")
    assert (tmp_path / "x").read_bytes().startswith(b"<?xml")


def test_shares_of_many_layers_add_up_to_one() -> None:
    """There are fewer colors than some models have layers."""
    pytest.importorskip("matplotlib")
    axes = new_figure().add_subplot()
    draw_shares(axes, {"x": {f"layer {number}": 1 / 9 for number in range(9)}}, "share")
    assert sum(patch.get_width() for patch in axes.patches) == pytest.approx(1)


# --- parts of speech


def make_tagged(number: int, seed: int) -> list[Tagged]:
    tags = {"play": "NN", "the": "DT", "she": "PRP", "new": "JJ"}
    draw = np.random.default_rng(seed)
    sentences = [draw.choice(list(tags), size=draw.integers(1, 9)).tolist() for _ in range(number)]
    return [Tagged(tokens, [tags[token] for token in tokens]) for tokens in sentences]


def test_pos_has_each_layer_of_each_corpus_and_probes_it_once(model: Embedder, tmp_path: Path, monkeypatch) -> None:
    corpora = {"UD": representations.TaggedCorpus(make_tagged(50, 0), make_tagged(9, 1), make_tagged(9, 2))}
    corpora["CoNLL-2000"] = representations.with_dev(make_tagged(40, 3), make_tagged(9, 4))
    assert [len(part) for part in corpora["CoNLL-2000"]] == [36, 4, 9]
    (table,) = representations.analyze_pos(model, corpora, tmp_path, "m").tables
    assert table.columns == [representations.FREQUENT, "layer 0", "layer 1", "layer 2", published.SPECIAL]
    for name, corpus in corpora.items():
        assert table.here[name]["layer 1"] == 100 * probe_pos(model, *corpus, 1)
        assert table.here[name][representations.FREQUENT] == 100 * most_frequent_tag(corpus.train, corpus.test)
    monkeypatch.setattr(representations, "probe_pos", lambda *_: pytest.fail("what was found is not read"))
    assert representations.analyze_pos(model, corpora, tmp_path, "m").tables == [table]
    others = {"UD": corpora["UD"]._replace(test=make_tagged(9, 7))}
    for one, sets in ((model, others), (Embedder(make_model()), corpora)):
        with pytest.raises(pytest.fail.Exception, match="what was found is not read"):
            representations.analyze_pos(one, sets, tmp_path, "m")


def test_quick_analyses_take_few_sentences(model: Embedder, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(representations, "QUICK_SENTENCES", (20, 5, 4))
    monkeypatch.setattr(representations, "QUICK_SEMCOR", 10)
    monkeypatch.setattr(representations, "QUICK_TEST", 3)
    corpus = representations.TaggedCorpus(make_tagged(50, 0), make_tagged(9, 1), make_tagged(9, 2))
    few = representations.TaggedCorpus(corpus.train[:20], corpus.dev[:5], corpus.test[:4])
    found = representations.analyze_pos(model, {"x": corpus}, tmp_path / "quick", "m", quick=True)
    assert found.tables == representations.analyze_pos(model, {"x": few}, tmp_path / "few", "m").tables
    semcor, test = make_annotated(30, 9), make_annotated(20, 8)
    found = representations.analyze_wsd(model, semcor, {"x": test}, FIRST, tmp_path / "quick", "m", quick=True)
    wanted = representations.analyze_wsd(model, semcor[:10], {"x": test[:3]}, FIRST, tmp_path / "few", "m")
    assert found.tables == wanted.tables


def test_conll2000_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("He PRP B-NP\nruns VBZ B-VP\n\n\nNow RB O\n", encoding="utf-8")
    assert read_conll2000(path) == [Tagged(["He", "runs"], ["PRP", "VBZ"]), Tagged(["Now"], ["RB"])]
    for text, says in (
        ("He PRP B-NP\nruns VBZ\n", r"x\.txt, line 2: 2 columns; expected a word, its tag and its chunk"),
        ("He PRP B-NP O\n", r"x\.txt, line 1: 4 columns; expected a word, its tag and its chunk"),
        ("\n", r"x\.txt: holds no sentence"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ElmoError, match=says):
            read_conll2000(path)


@pytest.mark.external
def test_conll2000_has_its_sentences(shared: Path) -> None:
    sets = [read_conll2000(shared / "data" / "pos" / f"conll2000_{part}.txt.xz") for part in ("train", "test")]
    assert [len(part) for part in sets] == [8936, 2012]


# --- senses

PLAY = Target("play", "NOUN")
FIRST = {PLAY: "play%1"}


def make_annotated(number: int, seed: int) -> list[Annotated]:
    """Make sentences with "play" after one of two words. Its sense is 1 or 2 at random."""
    draw = np.random.default_rng(seed)
    return [
        Annotated(["a", word, "play"], [Instance(PLAY, 2, 3, (f"play%{draw.integers(1, 3)}",))])
        for word in draw.choice(["new", "good", "old"], size=number).tolist()
    ]


def test_wsd_counts_the_papers_four_sets_and_all(model: Embedder, tmp_path: Path, monkeypatch) -> None:
    """Instances count equally, whatever their set. The numbers are those of `evaluate_wsd`, and mixes have names."""
    names = ["senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015"]
    tests = {name: make_annotated(4 + 9 * number, number) for number, name in enumerate(names)}
    semcor = make_annotated(30, 9)
    finding = representations.analyze_wsd(model, semcor, tests, FIRST, tmp_path, "m")
    means, single = finding.tables
    own = ["first sense", "layer 0", "layer 1", "layer 2", "mean of all", "mean of 1 to 2"]
    assert means.columns == [*own, published.SPECIAL]
    assert single.columns == own[1:]
    assert means.paper == published.SENSES
    expected = evaluate_wsd(model, semcor, tests, FIRST, {"layer 1": 1, "mix": [0.0, 0.5, 0.5]})
    four = sum((score for name, score in expected["layer 1"].items() if name != "semeval2007"), Score())
    assert means.here[published.FOUR_SETS]["layer 1"] == pytest.approx(100 * four.f1)
    every = sum(expected["layer 1"].values(), Score())
    assert means.here[representations.ALL]["layer 1"] == pytest.approx(100 * every.f1)
    mix = expected["mix, nearest use"]["senseval3"]
    assert single.here["senseval3"]["mean of 1 to 2"] == pytest.approx(100 * mix.f1)
    monkeypatch.setattr(representations, "evaluate_wsd", None)
    assert representations.analyze_wsd(model, semcor, tests, FIRST, tmp_path, "m").tables == finding.tables
    for other in (
        (Embedder(make_model()), semcor, tests, FIRST),
        (model, semcor[1:], tests, FIRST),
        (model, semcor, tests, {PLAY: "play%2"}),
    ):
        with pytest.raises(TypeError, match="'NoneType' object is not callable"):
            representations.analyze_wsd(*other, tmp_path, "m")
    few = {name: tests[name] for name in names[:2]}
    monkeypatch.setattr(representations, "evaluate_wsd", evaluate_wsd)
    rows = representations.analyze_wsd(model, semcor, few, FIRST, tmp_path, "m").tables[0].here
    assert list(rows) == ["senseval2", "senseval3", representations.ALL]


def test_progress_is_shown_while_a_model_reads(model: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    probe_pos(model, make_tagged(5, 0), make_tagged(5, 1), make_tagged(5, 2), 1)
    evaluate_wsd(model, make_annotated(9, 0), {"x": make_annotated(3, 1)}, FIRST)
    shown = terminal.getvalue()
    assert "embedding: " in shown
    assert "of 5 sentences" in shown
    assert "learning senses: " in shown


# --- neighbors


def test_neighbors_find_the_papers_sentences_and_count_senses(model: Embedder, tmp_path: Path) -> None:
    """The text has the paper's sentence in a longer form. That sentence is not its own neighbor."""
    whole = [*published.GAME.split(), "in", "the", "hole"]
    answer = ["Kieffer", ",", "the", "only", "junior", ",", "saw", "a", "play"]
    text = [
        *make_annotated(20, 0),
        Annotated(whole, [Instance(PLAY, 5, 6, ("play%game",))]),
        Annotated(answer, [Instance(PLAY, 8, 9, ("play%game", "play%1"))]),
    ]
    static = StaticVectors(["play", "game", "far"], np.float32([[1, 0], [2, 0.1], [0, 1]]))
    found, senses = representations.analyze_neighbors(model, text, static, tmp_path, "m", quick=True).tables
    game, drama = found.here[published.GAME], found.here[published.DRAMA]
    assert published.GAME not in str(game[representations.NEAREST])
    near = str(game[representations.NEAREST]).split(" / ")
    rank = next(number for number, use in enumerate(near, 1) if "Kieffer" in use)
    assert game[representations.RANK] == f"{rank} of 4"  # three distinct sentences, and the paper's
    same = str(game[representations.SAME]).split(", ")
    assert [("Kieffer" in use, word) for use, word in zip(near, same, strict=True)].count((True, "yes")) == 1
    assert same.count("no") == 2
    assert drama[representations.SAME] == "not tagged"
    assert drama[representations.RANK] == "not in the text"
    assert found.here["play, static vectors"] == {representations.NEAREST: "game, far"}
    assert list(senses.here) == ["play"]
    assert senses.columns == [representations.CHANCE, "layer 0", "layer 1", "layer 2"]
    measured = separation(gather_uses(model, text, "play", 1))
    assert senses.here["play"]["layer 1"] == 100 * measured.same
    assert senses.here["play"][representations.CHANCE] == 100 * measured.chance


def test_static_neighbors_are_as_many_as_asked_for_and_need_the_word() -> None:
    static = StaticVectors(["play", "game", "far"], np.float32([[1, 0], [2, 0.1], [0, 1]]))
    assert representations.nearest_static(static, "play", 1) == ["game"]
    with pytest.raises(ElmoError, match="the static vectors have no word 'play'"):
        representations.nearest_static(StaticVectors(["x"], np.ones((1, 2), np.float32)), "play", 3)


def test_text_without_the_word_is_refused(model: Embedder, tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match="the annotated text has no use of 'play'; give SemCor"):
        representations.analyze_neighbors(model, [Annotated(["x"], [])], None, tmp_path, "m")


def test_senses_that_are_never_repeated_are_left_out(model: Embedder, tmp_path: Path) -> None:
    """If a text uses a word only once in each sense, no use can have a neighbor of the same sense."""

    def use(number: int, word: str, sense: str) -> Annotated:
        return Annotated([str(number), word], [Instance(Target(word, "NOUN"), 1, 2, (sense,))])

    text = [use(0, "play", "a%1"), use(1, "play", "a%1"), use(2, "line", "b%1"), use(3, "line", "c%1")]
    table = representations.analyze_neighbors(model, text, None, tmp_path / "some", "m").tables[1]
    assert list(table.here) == ["play"]
    with pytest.raises(ElmoError, match=r"the annotated text has no sense of play, line, .* in two sentences"):
        representations.analyze_neighbors(model, text[1:], None, tmp_path / "none", "m")


@pytest.mark.parametrize(
    ("draw", "num_tables"),
    [(representations.draw_pos, 1), (representations.draw_wsd, 2), (representations.draw_neighbors, 2)],
)
def test_each_analysis_has_a_picture_with_labels_and_a_legend(
    draw: Callable[[Any, Finding], None], num_tables: int
) -> None:
    pytest.importorskip("matplotlib")
    table = Table("t", "F1 (%)", ["a", "b"], {"x": {"a": 1.0, "b": 2.0}, "y": {"a": 2.0}})
    figure = new_figure()
    draw(figure, Finding("x", "x", "m", False, [table] * num_tables, {}))
    assert figure.axes
    assert all(axes.get_ylabel() == "F1 (%)" and axes.get_legend() for axes in figure.axes)


def test_tags_of_two_sentences_are_enough() -> None:
    assert [len(part) for part in representations.with_dev(make_tagged(2, 3), make_tagged(9, 4))] == [1, 1, 9]


def test_tags_of_one_sentence_leave_nothing_to_train_on() -> None:
    with pytest.raises(ElmoError, match="the training text holds 1 tagged sentence; it takes two"):
        representations.with_dev(make_tagged(1, 3), make_tagged(9, 4))
