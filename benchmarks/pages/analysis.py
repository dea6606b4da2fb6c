"""Write docs/analysis.md from a folder of results: tables, pictures, and which of the paper's statements hold.

    python benchmarks/experiments/paper_analyses.py --model run/ --out analysis/
    python benchmarks/pages/analysis.py docs/analysis.md analysis/
    python benchmarks/pages/analysis.py docs/analysis.md other-tasks/ --join

Figures and pictures are kept in a folder next to the page that has the page's name. If an analysis is missing from the
results, the page shows what is there from before, or says that there is nothing. With `--join`, the page also keeps the
rows of tasks that are not in the results. The prose is in `analysis.md` next to this script.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Any

from elmo.analysis.paper import published as p
from elmo.analysis.paper.finding import (
    Finding,
    Table,
    cell_text,
    join_findings,
    read_finding,
    table_markdown,
    write_finding,
)
from elmo.analysis.paper.representations import (
    ALL,
    CHANCE,
    SAME,
    UNTAGGED,
    draw_neighbors,
    draw_pos,
    draw_wsd,
)
from elmo.analysis.paper.tasks import (
    GAMMA,
    WITH,
    WITHOUT,
    draw_efficiency,
    draw_finetuning,
    draw_settings,
    draw_weights,
)
from elmo.analysis.wsd import FIRST_SENSE

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.script import script

TEMPLATE = Path(__file__).with_suffix(".md")
TRAINED, ANSWERED, TAGGED, COUNTED = 4.2, 1.6, 0.5, 8.0
"""Differences, in points, that may be due to chance.

They are two standard deviations of a difference, each of which is √2 times that of a single figure. For trainings the
latter is 1.5, that of WNUT-17's F1 over five seeds (docs/results.md). For the others it is the standard error: about
0.6 for the 7,253 test instances of senses, 0.2 for the tags of 25,000 tokens, and 3 for the shares of some hundred
uses. Two figures of the same instances differ by less than independent ones, so these limits are rather too wide.
"""

TRAINED_ON = {p.TASK_NAMES["srl"]: 2.1, p.TASK_NAMES["squad"]: 1.7, p.TASK_NAMES["snli"]: 2.9}
"""The same for trainings of some tasks. Over three seeds, dev F1 of `propbank10` deviates by 0.73 without ELMo, that of
`squad` by 0.60 with it, and the dev accuracy of `snli-captions` by 1.01 without it (docs/results.md).
"""

LEARNED = 1.5
"""A score, in points, up to which a model has learned nothing."""

FAR_APART = 0.1
"""Weights that differ by more aren't balanced."""


class Verdict(Enum):
    """Whether figures agree with a statement. A difference that may be due to chance says neither."""

    SO = ""
    UNDECIDED = " (undecided)"
    NOT_SO = " (not so)"

    @classmethod
    def of(cls, difference: float, margin: float = 0.0) -> Verdict:
        """Judge a difference that should be positive."""
        return cls.SO if difference > margin else cls.NOT_SO if difference < -margin else cls.UNDECIDED


@dataclass(frozen=True)
class Case:
    """Whether a statement holds for one row, and the figures that say so."""

    name: str
    figures: str
    verdict: Verdict


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, the cases that it is about, and what may explain those where it fails."""

    text: str
    cases: Sequence[Case]
    why: str = ""

    @property
    def held(self) -> int:
        """The number of cases where it holds."""
        return sum(case.verdict is Verdict.SO for case in self.cases)

    @property
    def verdict(self) -> str:
        """Whether it holds, and where."""
        if not self.cases:
            return "no figures to compare"
        return f"**{self._word}**: {'; '.join(f'{c.name}{c.verdict.value}: {c.figures}' for c in self.cases)}"

    @property
    def _word(self) -> str:
        if self.held:
            return "agrees" if self.held == len(self.cases) else f"agrees in {self.held} of {len(self.cases)}"
        return "differs" if self.fails else "undecided"

    @property
    def fails(self) -> bool:
        """Whether the contrary holds anywhere."""
        return any(case.verdict is Verdict.NOT_SO for case in self.cases)


def chance_in(task: str) -> float:
    """Return the largest difference between two trainings of a task, in points, that may be due to chance."""
    return TRAINED_ON.get(task, TRAINED)


def above(table: Table, better: str, worse: str, margin: float | None = None) -> list[Case]:
    """Judge whether `better` is above `worse` in our rows that have both, by more than may be due to chance.

    That is `margin`, by default the one for trainings of the row's task, or two standard deviations of the difference
    of two single trainings (see `TRAINED`) if there are several seeds. That of two means would be narrower, but the
    deviation of three seeds is too rough for it.
    """
    cases: list[Case] = []
    for row, cells in ((row, numbers(cells)) for row, cells in table.here.items()):
        if better not in cells or worse not in cells:
            continue
        limit = chance_in(row) if margin is None else margin
        if spread := numbers(table.spread.get(row, {})):
            limit = 2 * 2**0.5 * max(spread.values())
        figures = f"{cells[better]:.{table.digits}f} and {cells[worse]:.{table.digits}f}"
        cases.append(Case(row, figures, Verdict.of(cells[better] - cells[worse], limit)))
    return cases


def alike(table: Table, row: str, one: str, other: str) -> list[Case]:
    """Judge whether two figures of one of our rows differ by no more than may be due to chance."""
    found = (case for case in above(table, one, other) if case.name == row)
    return [
        Case(case.name, case.figures, Verdict.SO if case.verdict is Verdict.UNDECIDED else Verdict.NOT_SO)
        for case in found
    ]


def aside(table: Table, told: Collection[str]) -> list[str]:
    """Return what our rows say about things that are not in the paper's statement."""
    rows = {row: numbers(cells).items() for row, cells in table.here.items() if row not in told}
    texts = {row: ", ".join(f"{name} {value:.{table.digits}f}" for name, value in cells) for row, cells in rows.items()}
    return [f"The paper says nothing about {row} here. Our figures: {text}." for row, text in texts.items() if text]


def numbers(cells: Mapping[str, float | str]) -> dict[str, float]:
    """Return the cells that are numbers."""
    return {name: value for name, value in cells.items() if not isinstance(value, str)}


def layers(finding: Finding) -> list[Claim]:
    (table,) = finding.tables
    tagger = p.TASK_NAMES["ner"]
    learned = [case for case in above(table, p.MIX, p.AVERAGE) if case.name != tagger]
    scaled = p.TASK_NAMES["snli"], p.TASK_NAMES["srl"]
    unscaled = [case for case in above(table, p.BASELINE, p.TOP_UNSCALED) if case.name in scaled]
    fitting = "this biLM's vectors have a fitting scale without γ, which is close to 1 where it is learned (Figure 2)"
    return [
        Claim("The last layer alone is better than no ELMo.", above(table, p.TOP, p.BASELINE)),
        Claim("All layers are better than the last one alone.", above(table, p.MIX, p.TOP)),
        Claim("Learned weights (λ=0.001) are better than the mean (λ=1).", learned),
        Claim(f"λ makes no difference ({tagger}).", alike(table, tagger, p.MIX, p.AVERAGE)),
        Claim(f"Without the scale γ, the last layer is worse than no ELMo ({', '.join(scaled)}).", unscaled, fitting),
    ]


def placement(finding: Finding) -> list[Claim]:
    (table,) = finding.tables
    attentive, plain = (p.TASK_NAMES["snli"], p.TASK_NAMES["squad"]), p.TASK_NAMES["srl"]
    both = [case for case in above(table, p.BOTH, p.INPUT) if case.name in attentive]
    alone = [case for place in (p.BOTH, p.OUTPUT) for case in above(table, p.INPUT, place) if case.name == plain]
    return [
        Claim("The input is a better place than the output.", above(table, p.INPUT, p.OUTPUT)),
        Claim(f"Both are better than the input alone ({', '.join(attentive)}).", both),
        Claim(f"The input alone is better than both, and than the output ({plain}).", alone),
    ]


def neighbors(finding: Finding) -> list[Claim]:
    sources, table = finding.tables
    *_, before, last = table.columns
    told = {row: str(cells[SAME]) for row, cells in sources.here.items() if cells.get(SAME)}
    nearest = [
        Case(f"{row[:30]}…", each, Verdict.SO if each.startswith("yes") else Verdict.NOT_SO)
        for row, each in told.items()
        if not each.startswith(UNTAGGED)
    ]
    return [
        Claim("The use nearest to the source has its sense (Table 4).", nearest),
        Claim("The nearest use has the same sense more often than by chance.", above(table, last, CHANCE, COUNTED)),
        Claim(
            "It does so more often in the last layer than in layer 0, the word alone.",
            above(table, last, table.columns[1], COUNTED),
        ),
        Claim(
            "It does so more often in the last layer than in the one before it.", above(table, last, before, COUNTED)
        ),
    ]


def wsd(finding: Finding) -> list[Claim]:
    table = finding.tables[0]
    weak = "means of few uses are noisy, and the first sense knows how frequent senses are, which a mean does not"
    table = replace(table, here={row: cells for row, cells in table.here.items() if row in (p.FOUR_SETS, ALL)})
    better = above(table, "layer 2", FIRST_SENSE, ANSWERED)
    return [
        Claim("The second layer is better than the first.", above(table, "layer 2", "layer 1", ANSWERED)),
        Claim("The second layer is better than the first sense.", better, weak),
    ]


def pos(finding: Finding) -> list[Claim]:
    (table,) = finding.tables
    return [Claim("The first layer is better than the second.", above(table, "layer 1", "layer 2", TAGGED))]


def efficiency(finding: Finding) -> list[Claim]:
    *tasks, epochs = finding.tables
    better: list[Case] = []
    largest: list[Case] = []
    tenth: list[Case] = []
    for table in tasks:
        chance = chance_in(table.title)
        with_elmo, without = ([numbers(table.here[row])[column] for column in table.columns] for row in (WITH, WITHOUT))
        gains = [a - b if max(a, b) > LEARNED else None for a, b in zip(with_elmo, without, strict=True)]
        shown = ", ".join("neither learns" if gain is None else f"{gain:+.1f}" for gain in gains)
        known = [gain for gain in gains if gain is not None]
        if known:
            better.append(Case(table.title, f"{shown}, the least {min(known):+.1f}", Verdict.of(min(known), chance)))
        if len(known) > 1 and gains[-1] is not None:
            *parts, whole = known
            mean = sum(parts) / len(parts)
            largest.append(Case(table.title, f"{mean:+.1f} and {whole:+.1f}", Verdict.of(mean - whole, chance)))
        if len(gains) > 2 and table.title == p.TASK_NAMES["srl"]:
            one, ten = with_elmo[-3], without[-2]
            tenth.append(Case(table.title, f"{one:.1f} and {ten:.1f}", Verdict.of(one - ten + chance)))
    passed = [
        Case(
            row,
            " and ".join(cell_text(cells[column], None, epochs.digits) for column in (p.PASSED_IN, p.BEST_EPOCH)),
            Verdict.of(numbers(cells)[p.BEST_EPOCH] - numbers(cells).get(p.PASSED_IN, float("inf"))),
        )
        for row, cells in epochs.here.items()
    ]
    return [
        Claim("ELMo is better at every size of the training set from which one of the two models learns.", better),
        Claim(
            "It brings more on smaller training sets (the mean of their gains, compared with the gain on the whole).",
            largest,
        ),
        Claim("1 % with ELMo is about as good as 10 % without (SRL).", tenth),
        Claim("ELMo passes the baseline's best score in fewer epochs (in 10 instead of 486 for SRL).", passed),
    ]


def weights(finding: Finding) -> list[Claim]:
    (table,) = finding.tables
    rows = {row: {n: v for n, v in numbers(cells).items() if n != GAMMA} for row, cells in table.here.items()}
    shown = {row: ", ".join(f"{weight:.2f}" for weight in cells.values()) for row, cells in rows.items()}
    first = [
        Case(
            row,
            shown[row],
            Verdict.of(cells["layer 1"] - max(weight for name, weight in cells.items() if name != "layer 1")),
        )
        for row, cells in rows.items()
        if row.endswith("input")
    ]
    equal = [
        Case(row, shown[row], Verdict.of(FAR_APART - (max(cells.values()) - min(cells.values()))))
        for row, cells in rows.items()
        if row.endswith("output")
    ]
    why = "weights hardly move under a large λ or in few steps"
    return [
        Claim("At the input, the first biLSTM layer has the largest weight.", first, why),
        Claim("At the output, weights are about equal.", equal),
    ]


def finetuning(finding: Finding) -> list[Claim]:
    perplexity, scores = finding.tables
    better = above(scores, p.AFTER, p.BEFORE)
    return [
        Claim("Perplexity falls.", above(perplexity, p.BEFORE, p.AFTER, 0.0)),
        Claim("The task's score rises (SNLI).", [c for c in better if c.name == p.TASK_NAMES["snli"]]),
        Claim("It stays as it was (SST).", alike(scores, p.TASK_NAMES["sst"], p.BEFORE, p.AFTER)),
    ]


CLAIMS: dict[str, Callable[[Finding], list[Claim]]] = {
    function.__name__: function
    for function in (layers, placement, neighbors, wsd, pos, efficiency, weights, finetuning)
}

DRAWINGS: dict[str, Callable[[Any, Finding], None]] = {
    "layers": draw_settings,
    "placement": draw_settings,
    "neighbors": draw_neighbors,
    "wsd": draw_wsd,
    "pos": draw_pos,
    "efficiency": draw_efficiency,
    "weights": draw_weights,
    "finetuning": draw_finetuning,
}
"""The function that draws each analysis."""

TOLD: Mapping[str, tuple[int, Collection[str]]] = {
    "placement": (0, p.PLACE_SCORES),
    "finetuning": (1, (*p.TUNED_SCORES, p.TASK_NAMES["sst"])),
}
"""For analyses with statements about some tasks only: the number of the table, and the tasks that these are about."""


def section(finding: Finding, claims: Sequence[Claim], pictures: str) -> str:
    """Return the section of one analysis."""
    several = len(finding.tables) > 1
    tables = [(f"{table.title}:\n\n" if several else "") + table_markdown(table) for table in finding.tables]
    minutes = sum(finding.seconds.values()) / 60
    facts = f"Model: {finding.model}. {minutes:.1f} minutes of computing.{' Quick run.' if finding.quick else ''}"
    picture = f"![{finding.title}]({pictures}/{finding.name}.svg)"
    lines = ["| the paper | here |", "|---|---|", *(f"| {claim.text} | {claim.verdict} |" for claim in claims)]
    reasons: dict[str, list[str]] = {}
    for claim in claims:
        if claim.held < len(claim.cases) and claim.why:
            reasons.setdefault(claim.why, []).append(claim.text.rstrip("."))
    why = [
        f"- “{'” and “'.join(texts)}”: a possible reason why this is not seen here is that {reason}."
        for reason, texts in reasons.items()
    ]
    if finding.name in TOLD:
        number, told = TOLD[finding.name]
        why += [f"- {line}" for line in aside(finding.tables[number], told)]
    return "\n\n".join([facts, *tables, picture, "\n".join(lines), *(["\n".join(why)] if why else [])])


def summary(findings: Mapping[str, Finding], claims: Mapping[str, Sequence[Claim]]) -> str:
    """Say how many statements hold."""
    known = [claim for each in claims.values() for claim in each]
    measured = [claim for claim in known if claim.cases]
    whole = sum(claim.held == len(claim.cases) for claim in measured)
    partly = sum(claim.held > 0 for claim in measured) - whole
    undecided = sum(claim.held == 0 and not claim.fails for claim in measured)
    rows = {
        "hold here in all cases": whole,
        "hold in some cases": partly,
        "hold in no case": len(measured) - whole - partly - undecided,
        "are undecided (see below), so that nothing can be said": undecided,
    }
    table = "".join(f"| {name} | {number} |\n" for name, number in rows.items())
    text = f"We tested {len(measured)} statements of the paper:\n\n| | statements |\n|---|---|\n{table}\n"
    text += textwrap.fill(
        f"For another {len(known) - len(measured)} there are no figures to compare, because a task was not run or the "
        "use of a word has no sense in SemCor.",
        95,
    )
    if any(finding.quick for finding in findings.values()):
        text = f"**From quick runs, on little data: figures and verdicts mean nothing.** {text}"
    return text


def keep(results: Path, name: str, kept: Path, join: bool) -> None:
    """Copy a finding and its picture into the folder that is kept, and `join` it with the one there."""
    if results.resolve() == kept.resolve():
        return
    with TemporaryDirectory() as folder:
        source = results
        if join and (kept / f"{name}.json").exists():
            source = Path(folder)
            joined = join_findings(read_finding(kept, name), read_finding(results, name))
            write_finding(source, joined, DRAWINGS[name])
        for ending in (".json", ".svg"):
            shutil.copyfile(source / f"{name}{ending}", kept / f"{name}{ending}")


@script
def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="the page to write, such as docs/analysis.md")
    parser.add_argument(
        "results", type=Path, nargs="?", help="what paper_analyses.py wrote; default: what is kept from before"
    )
    parser.add_argument("--join", action="store_true", help="keep the rows of tasks that are not in the results")
    arguments = parser.parse_args()
    page: Path = arguments.page
    kept = page.with_suffix("")
    results: Path = arguments.results or kept
    given = [name for name in CLAIMS if (results / f"{name}.json").exists()]
    if arguments.results and not given:
        parser.error(f"{results}: holds no result, such as {next(iter(CLAIMS))}.json")
    kept.mkdir(parents=True, exist_ok=True)
    for name in given:
        keep(results, name, kept, arguments.join)
    findings = {name: read_finding(kept, name) for name in CLAIMS if (kept / f"{name}.json").exists()}
    claims = {name: CLAIMS[name](finding) for name, finding in findings.items()}
    parts = {name: section(finding, claims[name], kept.name) for name, finding in findings.items()}
    absent = dict.fromkeys(CLAIMS.keys() - findings.keys(), "Not measured yet.")
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(parts, **absent, summary=summary(findings, claims))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
