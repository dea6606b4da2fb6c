"""The verdicts on the page of analyses are computed from its figures."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from elmo.analysis.paper import published as p
from elmo.analysis.paper.finding import Finding, Table
from elmo.analysis.paper.representations import SAME
from elmo.analysis.paper.tasks import WITH, WITHOUT
from elmo.analysis.wsd import FIRST_SENSE
from scripts import load_script

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "pages" / "analysis.py"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return load_script(SCRIPT)


def layers(scores: dict[str, float]) -> Finding:
    table = Table("Layers", "F1 (%)", list(scores), {"NER": scores}, p.LAYER_SCORES)
    return Finding("layers", "Layers", "m", False, [table], {})


def test_other_figures_give_another_verdict(page: ModuleType) -> None:
    scores = {p.BASELINE: 40.0, p.TOP: 46.0, p.AVERAGE: 47.0, p.MIX: 46.5}
    verdicts = [claim.verdict for claim in page.layers(layers(scores))]
    assert verdicts == [
        "**agrees**: NER: 46.0 and 40.0",
        "**undecided**: NER (undecided): 46.5 and 46.0",
        "no figures to compare",
        "**agrees**: NER: 46.5 and 47.0",
        "no figures to compare",
    ]


def test_seeds_tell_what_chance_makes(page: ModuleType) -> None:
    """A gain of six points is more than chance for one seed (see TRAINED), but not if seeds differ by three points."""
    cells = {p.TOP: 46.0, p.BASELINE: 40.0}
    table = Table("", "", [], {"NER": cells}, spread={"NER": {p.TOP: 3.0, p.BASELINE: 0.1}})
    assert [case.verdict.name for case in page.above(table, p.TOP, p.BASELINE)] == ["UNDECIDED"]
    assert [case.verdict.name for case in page.above(one("", "NER", cells), p.TOP, p.BASELINE)] == ["SO"]
    assert [case.verdict.name for case in page.above(one("", "NER", cells), p.BASELINE, p.TOP)] == ["NOT_SO"]


def test_sizes_at_which_neither_model_learns_give_no_verdict(page: ModuleType) -> None:
    columns = ["0.1 %, 3", "1 %, 34", "10 %, 339", "100 %, 3,394"]
    scores = {WITH: (0.2, 0.1, 38.5, 47.9), WITHOUT: (0.4, 0.6, 0.0, 39.7)}
    here = {row: dict(zip(columns, cells, strict=True)) for row, cells in scores.items()}
    epochs = Table("Epochs", "epochs", [p.BEST_EPOCH, p.PASSED_IN], {})
    finding = Finding("efficiency", "x", "m", False, [Table("NER", "F1", columns, here), epochs], {})
    better, largest, *_ = page.efficiency(finding)
    assert better.verdict == "**agrees**: NER: neither learns, neither learns, +38.5, +8.2, the least +8.2"
    assert largest.verdict == "**agrees**: NER: +38.5 and +8.2"
    here[WITH]["10 %, 339"] = 0.9
    better, largest, *_ = page.efficiency(finding)
    assert better.verdict == "**agrees**: NER: neither learns, neither learns, neither learns, +8.2, the least +8.2"
    assert largest.verdict == "no figures to compare"


def test_efficiency_is_judged_by_its_curves(page: ModuleType) -> None:
    """ELMo gains 15, 27 and 9 points: something at each size, and more where the set is small. With 1 % of the set it
    reaches 24, and the baseline reaches 11 with 10 %, which the paper compares for SRL only."""
    columns = ["1 %, 1", "10 %, 10", "100 %, 100"]
    here = {WITH: dict(zip(columns, [24.0, 38.0, 60.0], strict=True))}
    here[WITHOUT] = dict(zip(columns, [9.0, 11.0, 51.0], strict=True))
    epochs = Table("Epochs", "epochs", [], {"SRL": {p.BEST_EPOCH: 9.0, p.PASSED_IN: "never"}}, p.EPOCHS)
    finding = Finding("efficiency", "x", "m", False, [Table("SRL", "F1", columns, here), epochs], {})
    words = [claim.verdict.split(":")[0] for claim in page.efficiency(finding)]
    assert words == ["**agrees**", "**agrees**", "**agrees**", "**differs**"]
    other = Finding("efficiency", "x", "m", False, [Table("NER", "F1", columns, here), epochs], {})
    assert page.efficiency(other)[2].verdict == "no figures to compare"


def one(title: str, row: str, cells: dict[str, float]) -> Table:
    """Return a table with one row of our figures."""
    return Table(title, "", list(cells), {row: cells})


LAYERS = ["chance", "layer 0", "layer 1", "layer 2"]


@pytest.mark.parametrize(
    ("name", "tables", "verdicts"),
    [
        ("placement", [one("", "SNLI", {p.INPUT: 60.0, p.BOTH: 72.0, p.OUTPUT: 66.0})], ["differs", "agrees", "no"]),
        ("placement", [one("", "NER", {p.INPUT: 69.0, p.BOTH: 63.0, p.OUTPUT: 66.0})], ["undecided", "no", "no"]),
        ("placement", [one("", "SRL", {p.INPUT: 69.0, p.BOTH: 63.0, p.OUTPUT: 66.0})], ["agrees", "no", "agrees"]),
        (
            "placement",
            [one("", "SRL", {p.INPUT: 69.0, p.BOTH: 70.0, p.OUTPUT: 67.0})],
            ["undecided", "no", "undecided"],
        ),
        ("placement", [one("", "SRL", {p.INPUT: 69.0, p.BOTH: 63.0, p.OUTPUT: 75.0})], ["differs", "no", "agrees"]),
        (
            "layers",
            [one("", "SRL", {p.BASELINE: 58.0, p.TOP: 64.0, p.TOP_UNSCALED: 40.0, p.AVERAGE: 79.0, p.MIX: 73.0})],
            ["agrees", "agrees", "differs", "no", "agrees"],
        ),
        ("layers", [one("", "SNLI", {p.BASELINE: 58.0, p.TOP_UNSCALED: 60.0})], ["no", "no", "no", "no", "undecided"]),
        (
            "layers",
            [one("", "NER", {p.BASELINE: 60.0, p.TOP: 63.0, p.AVERAGE: 75.0, p.MIX: 69.0})],
            ["undecided", "agrees", "no", "differs", "no"],
        ),
        (
            "neighbors",
            [
                Table(
                    "", "", [], {"Chico": {SAME: "no, yes"}, "Olivia": {SAME: "yes, no"}, "play": {SAME: "not tagged"}}
                ),
                one("", "play", dict(zip(LAYERS, [9.0, 40.0, 20.0, 30.0], strict=True))),
            ],
            ["agrees", "agrees", "differs", "agrees"],
        ),
        (
            "wsd",
            [one("", p.FOUR_SETS, {FIRST_SENSE: 66.2, "layer 1": 70.0, "layer 2": 68.0})],
            ["differs", "agrees"],
        ),
        (
            "wsd",
            [one("", p.FOUR_SETS, {FIRST_SENSE: 68.0, "layer 1": 60.0, "layer 2": 64.0})],
            ["agrees", "differs"],
        ),
        (
            "pos",
            [one("", "UD", {"most frequent tag": 80.0, "layer 0": 85.0, "layer 1": 84.0, "layer 2": 83.0})],
            ["agrees"],
        ),
        ("weights", [one("", "NER, input", {"layer 0": 0.5, "layer 1": 0.3, "γ": 9.0})], ["differs", "no"]),
        ("weights", [one("", "SNLI, output", {"layer 0": 0.52, "layer 1": 0.48, "γ": 9.0})], ["no", "agrees"]),
        (
            "finetuning",
            [
                one("", "SST-5", {p.BEFORE: 90.0, p.AFTER: 50.0}),
                Table("", "", [], {"SST-5": {p.BEFORE: 44.0, p.AFTER: 45.5}, "SNLI": {p.BEFORE: 60.0, p.AFTER: 61.0}}),
            ],
            ["agrees", "undecided", "agrees"],
        ),
    ],
)
def test_each_analysis_has_its_verdicts(page: ModuleType, name: str, tables: list[Table], verdicts: list[str]) -> None:
    claims = page.CLAIMS[name](Finding(name, "x", "m", False, tables, {}))
    assert [claim.verdict.lstrip("*").split("*")[0].split()[0] for claim in claims] == verdicts


def test_the_page_has_what_is_there_and_says_what_is_not(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = layers({p.BASELINE: 40.0, p.TOP: 39.0, p.AVERAGE: 44.5, p.MIX: 45.0})
    (tmp_path / "layers.json").write_text(json.dumps(finding.as_json()))
    (tmp_path / "layers.svg").write_text("<svg/>")
    monkeypatch.setattr(sys, "argv", ["analysis_page.py", str(tmp_path / "docs" / "analysis.md"), str(tmp_path)])
    page.main()
    text = (tmp_path / "docs" / "analysis.md").read_text()
    assert "We tested 3 statements of the paper:" in text
    assert (
        "| hold here in all cases | 2 |\n| hold in some cases | 0 |\n| hold in no case | 0 |\n| are undecided" in text
    )
    assert "For another 2 there are no figures to compare, because a task was not run" in text
    assert "| NER | here | 40.0 | 39.0 | 44.5 | 45.0 |" in text
    assert "![Layers](analysis/layers.svg)" in text
    assert text.count("Not measured yet.") == 7
    assert (tmp_path / "docs" / "analysis" / "layers.svg").read_text() == "<svg/>"
    monkeypatch.setattr(sys, "argv", ["analysis_page.py", str(tmp_path / "docs" / "analysis.md")])
    page.main()
    assert (tmp_path / "docs" / "analysis.md").read_text() == text
    monkeypatch.setattr(sys, "argv", ["analysis_page.py", str(tmp_path / "docs" / "analysis.md"), str(tmp_path / "no")])
    with pytest.raises(SystemExit, match="2"):
        page.main()
    assert (tmp_path / "docs" / "analysis.md").read_text() == text


def test_rows_of_other_tasks_are_kept_where_asked(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    finding, text = layers({p.BASELINE: 40.0, p.TOP: 39.0, p.AVERAGE: 44.5, p.MIX: 45.0}), tmp_path / "docs/analysis.md"
    for folder, row in (("one", "NER"), ("two", "SST-5")):
        (tmp_path / folder).mkdir()
        here = {row: finding.tables[0].here["NER"]}
        found = replace(finding, tables=[replace(finding.tables[0], here=here)])
        (tmp_path / folder / "layers.json").write_text(json.dumps(found.as_json()))
        (tmp_path / folder / "layers.svg").write_text(folder)
    for arguments, rows in ((["one"], 1), (["two", "--join"], 2), (["two"], 1)):
        monkeypatch.setattr(sys, "argv", ["analysis_page.py", str(text), str(tmp_path / arguments[0]), *arguments[1:]])
        page.main()
        assert text.read_text().count("| here | 40.0 | 39.0 | 44.5 | 45.0 |") == rows
        assert ("SST-5" in (tmp_path / "docs/analysis/layers.svg").read_text()) == (rows == 2)  # drawn, not copied


def test_the_projects_page_is_of_the_kept_figures(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = SCRIPT.parents[2] / "docs"
    shutil.copytree(docs / "analysis", tmp_path / "analysis")
    monkeypatch.setattr(sys, "argv", ["analysis_page.py", str(tmp_path / "analysis.md")])
    page.main()
    assert (tmp_path / "analysis.md").read_text() == (docs / "analysis.md").read_text()


def test_reasons_and_what_the_paper_does_not_say_follow_the_table(page: ModuleType) -> None:
    learned = [one("", "NER, input", {"layer 0": 0.2, "layer 1": 0.3, "layer 2": 0.5})]
    finding = Finding("weights", "x", "m", False, learned, {})
    reason = "- “At the input, the first biLSTM layer has the largest weight”: a possible reason why this is not seen "
    assert reason in page.section(finding, page.weights(finding), "")
    scores = Table("", "", [], {"NER": {p.BEFORE: 47.9, p.AFTER: 44.8}, "SNLI": {p.BEFORE: 1.0, p.AFTER: 2.0}})
    finding = Finding("finetuning", "x", "m", False, [one("", "NER", {}), scores], {})
    text = page.section(finding, page.finetuning(finding), "")
    assert text.endswith("- The paper says nothing about NER here. Our figures: before 47.9, after 44.8.")
