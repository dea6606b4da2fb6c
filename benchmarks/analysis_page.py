"""Write docs/analysis.md from a folder of results: tables and pictures, and which of the paper's statements hold.

    python benchmarks/analysis.py --model run/ --out analysis/
    python benchmarks/analysis_page.py docs/analysis.md analysis/

Figures and pictures are kept in a folder beside the page, called as it is: of an analysis that the results haven't, the
page shows what is there from an earlier time, or says that there is nothing. The prose is in `analysis_page.md`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from elmo.analysis.paper import published as p
from elmo.analysis.paper.efficiency import WITH, WITHOUT
from elmo.analysis.paper.finding import Finding, Table, cell_text, read_finding, table_markdown
from elmo.analysis.paper.neighbors import CHANCE
from elmo.analysis.paper.weights import GAMMA
from elmo.analysis.paper.wsd import ALL
from elmo.analysis.wsd import FIRST_SENSE

TEMPLATE = Path(__file__).with_suffix(".md")
MARGIN = 1.0
"""Points within which two scores count as the same where the paper calls them so."""

FAR_APART = 0.1
"""Weights that differ by more aren't balanced."""


@dataclass(frozen=True)
class Case:
    """Whether a statement holds of one row, and the figures that say so."""

    name: str
    figures: str
    holds: bool


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, the cases here that it speaks of, and what may explain those where it fails."""

    text: str
    cases: Sequence[Case]
    why: str

    @property
    def verdict(self) -> str:
        """Whether it holds, and where."""
        if not self.cases:
            return "no figures to compare"
        held = sum(case.holds for case in self.cases)
        word = {len(self.cases): "**agrees**", 0: "**differs**"}.get(held, f"**agrees in {held} of {len(self.cases)}**")
        each = "; ".join(f"{case.name}: {case.figures}{'' if case.holds else ' (not so)'}" for case in self.cases)
        return f"{word}: {each}"


def above(table: Table, better: str, worse: str) -> list[Case]:
    """Whether `better` is above `worse` in our rows that have both."""
    rows = ((row, numbers(cells)) for row, cells in table.here.items())
    return [
        Case(row, f"{cells[better]:.{table.digits}f} and {cells[worse]:.{table.digits}f}", cells[better] > cells[worse])
        for row, cells in rows
        if better in cells and worse in cells
    ]


def alike(table: Table, row: str, one: str, other: str) -> list[Case]:
    """Whether two figures of a row of ours are within the margin."""
    cells = numbers(table.here.get(row, {}))
    if one not in cells or other not in cells:
        return []
    return [Case(row, f"{cells[one]:.1f} and {cells[other]:.1f}", abs(cells[one] - cells[other]) <= MARGIN)]


def numbers(cells: Mapping[str, float | str]) -> dict[str, float]:
    """The cells that are figures."""
    return {name: value for name, value in cells.items() if not isinstance(value, str)}


SMALL = "a small biLM's layers differ less, and by chance as much"


def layers(finding: Finding) -> list[Claim]:
    (table,) = finding.tables
    tagger = p.TASK_NAMES["ner"]
    learned = [case for case in above(table, p.MIX, p.AVERAGE) if case.name != tagger]
    return [
        Claim("The last layer alone is better than no ELMo.", above(table, p.TOP, p.BASELINE), SMALL),
        Claim("All layers are better than the last one alone.", above(table, p.MIX, p.TOP), SMALL),
        Claim("Learned weights (λ=0.001) are better than the mean (λ=1).", learned, SMALL),
        Claim(f"λ makes no difference ({tagger}), within a point.", alike(table, tagger, p.MIX, p.AVERAGE), SMALL),
    ]


def placement(finding: Finding) -> list[Claim]:
    (table,) = finding.tables
    attentive, plain = (p.TASK_NAMES["snli"], p.TASK_NAMES["squad"]), p.TASK_NAMES["srl"]
    both = [case for case in above(table, p.BOTH, p.INPUT) if case.name in attentive]
    alone = [case for place in (p.BOTH, p.OUTPUT) for case in above(table, p.INPUT, place) if case.name == plain]
    return [
        Claim("The input is a better place than the output.", above(table, p.INPUT, p.OUTPUT), SMALL),
        Claim(f"Both are better than the input alone ({', '.join(attentive)}).", both, SMALL),
        Claim(f"The input alone is better than both, and than the output ({plain}).", alone, SMALL),
    ]


def neighbors(finding: Finding) -> list[Claim]:
    table = finding.tables[1]
    *_, before, last = table.columns
    return [
        Claim("A use's neighbors in context share its sense, more than chance.", above(table, last, CHANCE), SMALL),
        Claim("More in the last layer than in the word alone.", above(table, last, table.columns[1]), SMALL),
        Claim("More in the last layer than in the one before.", above(table, last, before), SMALL),
    ]


def wsd(finding: Finding) -> list[Claim]:
    table = finding.tables[0]
    weak = "means of few uses are noisy, and the first sense knows how frequent senses are, which a mean does not"
    chosen = Table(
        table.title, table.unit, table.columns, {r: c for r, c in table.here.items() if r in (p.FOUR_SETS, ALL)}
    )
    first = [
        Case(row, f"{cells[FIRST_SENSE]:.1f} and {p.SENSES[row][FIRST_SENSE]:.1f}", gap <= 0.5)
        for row, cells in ((row, numbers(cells)) for row, cells in table.here.items())
        if row in p.SENSES
        for gap in [abs(cells[FIRST_SENSE] - p.SENSES[row][FIRST_SENSE])]
    ]
    return [
        Claim("WordNet's first sense reaches 65.9.", first, "not all of the sets' sentences were used"),
        Claim("The second layer is better than the first.", above(chosen, "layer 2", "layer 1"), SMALL),
        Claim("The second layer is better than the first sense.", above(chosen, "layer 2", FIRST_SENSE), weak),
    ]


def pos(finding: Finding) -> list[Claim]:
    (table,) = finding.tables
    return [
        Claim("The first layer is better than the second.", above(table, "layer 1", "layer 2"), SMALL),
    ]


def efficiency(finding: Finding) -> list[Claim]:
    *tasks, epochs = finding.tables
    better: list[Case] = []
    largest: list[Case] = []
    tenth: list[Case] = []
    for table in tasks:
        with_elmo, without = ([numbers(table.here[row])[column] for column in table.columns] for row in (WITH, WITHOUT))
        gains = [a - b if max(a, b) > MARGIN else None for a, b in zip(with_elmo, without, strict=True)]
        shown = ", ".join("neither learns" if gain is None else f"{gain:+.1f}" for gain in gains)
        known = [gain for gain in gains if gain is not None]
        if known:
            better.append(Case(table.title, shown, min(known) > 0))
        if len(known) > 1 and gains[-1] is not None:
            *parts, whole = known
            largest.append(Case(table.title, shown, sum(parts) / len(parts) > whole))
        if len(gains) > 2 and max(one := with_elmo[-3], ten := without[-2]) > MARGIN:
            tenth.append(Case(table.title, f"{one:.1f} and {ten:.1f}", one >= ten - MARGIN))
    passed = [
        Case(
            row,
            " and ".join(cell_text(cells[column], None, epochs.digits) for column in (p.PASSED_IN, p.BEST_EPOCH)),
            numbers(cells).get(p.PASSED_IN, float("inf")) < numbers(cells)[p.BEST_EPOCH],
        )
        for row, cells in epochs.here.items()
    ]
    few = "the smallest shares of a small training set are a handful of examples, from which neither model learns"
    return [
        Claim("ELMo is better at every size of the training set (from which either learns).", better, few),
        Claim("It brings more where the training set is smaller (the mean of these, and the whole).", largest, few),
        Claim("1 % with ELMo is about as good as 10 % without (SRL).", tenth, "the training sets are smaller here"),
        Claim("ELMo passes the baseline's best score in fewer epochs (486 and 10 for SRL).", passed, SMALL),
    ]


def weights(finding: Finding) -> list[Claim]:
    (table,) = finding.tables
    rows = {row: {n: v for n, v in numbers(cells).items() if n != GAMMA} for row, cells in table.here.items()}
    shown = {row: ", ".join(f"{weight:.2f}" for weight in cells.values()) for row, cells in rows.items()}
    first = [
        Case(row, shown[row], max(cells, key=lambda name, cells=cells: cells[name]) == "layer 1")
        for row, cells in rows.items()
        if row.endswith("input")
    ]
    level = [
        Case(row, shown[row], max(cells.values()) - min(cells.values()) <= FAR_APART)
        for row, cells in rows.items()
        if row.endswith("output")
    ]
    why = "weights hardly move under a large λ or in few steps, and a small biLM's first layer knows less"
    return [
        Claim("At the input, the first biLSTM layer has the largest weight.", first, why),
        Claim("At the output, weights are about level.", level, why),
    ]


def finetuning(finding: Finding) -> list[Claim]:
    perplexity, scores = finding.tables
    better = above(scores, p.AFTER, p.BEFORE)
    return [
        Claim("Perplexity falls.", above(perplexity, p.BEFORE, p.AFTER), "one epoch of a short text may spoil a model"),
        Claim("The task's score rises (SNLI).", [c for c in better if c.name == p.TASK_NAMES["snli"]], SMALL),
        Claim(
            "It stays as it was (SST), within a point.", alike(scores, p.TASK_NAMES["sst"], p.AFTER, p.BEFORE), SMALL
        ),
    ]


CLAIMS: dict[str, Callable[[Finding], list[Claim]]] = {
    function.__name__: function
    for function in (layers, placement, neighbors, wsd, pos, efficiency, weights, finetuning)
}


def section(finding: Finding, claims: Sequence[Claim], pictures: str) -> str:
    """What the page shows of one analysis."""
    several = len(finding.tables) > 1
    tables = [(f"{table.title}:\n\n" if several else "") + table_markdown(table) for table in finding.tables]
    facts = f"Model: {finding.model}.{' Quick run.' if finding.quick else ''}"
    picture = f"![{finding.title}]({pictures}/{finding.name}.svg)"
    lines = ["| the paper | here |", "|---|---|", *(f"| {claim.text} | {claim.verdict} |" for claim in claims)]
    reasons: dict[str, list[str]] = {}
    for claim in claims:
        if not all(case.holds for case in claim.cases):
            reasons.setdefault(claim.why, []).append(claim.text.rstrip("."))
    why = [f"- Why not “{'”, “'.join(texts)}”? Perhaps: {reason}." for reason, texts in reasons.items()]
    return "\n\n".join([facts, *tables, picture, "\n".join(lines), *(["\n".join(why)] if why else [])])


def summary(findings: Mapping[str, Finding], claims: Mapping[str, Sequence[Claim]]) -> str:
    """How many statements hold."""
    measured = [claim for each in claims.values() for claim in each if claim.cases]
    whole = sum(all(case.holds for case in claim.cases) for claim in measured)
    partly = sum(any(case.holds for case in claim.cases) for claim in measured) - whole
    text = (
        f"Of {len(measured)} statements of the paper that were put to the test, {whole} hold here in all cases, "
        f"{partly} in some, {len(measured) - whole - partly} in none."
    )
    if any(finding.quick for finding in findings.values()):
        text = f"**From quick runs, on little data: figures and verdicts mean nothing.** {text}"
    return text


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("results", type=Path, nargs="?", help="from benchmarks/analysis.py; default: those kept")
    arguments = parser.parse_args()
    results, page = arguments.results, arguments.page
    kept = page.with_suffix("")
    kept.mkdir(parents=True, exist_ok=True)
    if results is not None:
        for name in CLAIMS:
            if (results / f"{name}.json").exists():
                for ending in (".json", ".svg"):
                    shutil.copyfile(results / f"{name}{ending}", kept / f"{name}{ending}")
    findings = {name: read_finding(kept, name) for name in CLAIMS if (kept / f"{name}.json").exists()}
    claims = {name: CLAIMS[name](finding) for name, finding in findings.items()}
    parts = {name: section(finding, claims[name], kept.name) for name, finding in findings.items()}
    absent = dict.fromkeys(CLAIMS.keys() - findings.keys(), "Not measured yet.")
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(parts, **absent, summary=summary(findings, claims))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
