"""Write docs/results.md: the paper's tasks without ELMo and with it, from the records of finished trainings.

    python benchmarks/experiments/paper_tasks.py runs/ --vectors static50.txt static100.txt static300.txt --only sst5
    python benchmarks/pages/results.py docs/results.md

The first command trains, and writes what this page needs from each run folder: `runs/records/DATA/none.json` for a
baseline without ELMo, and `runs/records/DATA/elmo.json`, or another name, for a model with ELMo. The second one reads
records in `benchmarks/records`, or in the folder of `--records`. Seeds, scores, times, machines and commands are from
there. The paper's scores are written in this script, and the prose is in `results.md` next to it. So the figures that
are named in the prose are not from the records.
"""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from elmo.errors import ElmoError
from elmo.tasks import TASKS
from elmo.tasks.results import mean_and_deviation, spread

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.records import BASELINE, Run, read_examples, read_records, write_page_of_records
from common.script import script

TEMPLATE = Path(__file__).with_suffix(".md")

PAPERS_TABLES: dict[str, tuple[str, dict[str, float]]] = {
    "squad": (
        "Table 9, SQuAD 1.1, F1",
        {"best before": 84.4, "baseline": 81.1, "+ ELMo": 85.8, "+ ELMo, 11 models": 87.4},
    ),
    "snli": (
        "Table 8, SNLI, accuracy",
        {"best before": 88.6, "baseline": 88.0, "+ ELMo": 88.7, "+ ELMo, 5 models": 89.3},
    ),
    "srl": ("Table 10, CoNLL 2012, F1", {"best before": 81.7, "baseline": 81.4, "+ ELMo": 84.6}),
    "coref": ("Table 11, CoNLL 2012, mean F1", {"best before": 67.2, "baseline": 67.2, "+ ELMo": 70.4}),
    "ner": ("Table 12, CoNLL 2003, F1", {"best before": 91.93, "baseline": 90.15, "+ ELMo": 92.22}),
    "sst": ("Table 13, SST-5, accuracy", {"best before": 53.7, "baseline": 51.4, "+ ELMo": 54.7}),
}
"""Tables 8 to 13 of Peters et al. 2018, test sets; the baselines of NER and SST-5 are Table 1's, which has all six."""

NAMES = {
    "ner": "names",
    "sst": "sentiment",
    "snli": "entailment",
    "srl": "semantic roles",
    "coref": "coreference",
    "squad": "questions",
}
"""The tasks, as the page calls them."""

LANGUAGES = {"conll2002": " in Spanish", "conll2002-10": " in Spanish", "conll2002-1": " in Spanish"}
"""What the name of a task is followed by for data that is not English."""

UNITS = {
    "ner": "sentences",
    "sst": "phrases",
    "snli": "pairs",
    "srl": "predicates",
    "coref": "documents",
    "squad": "questions",
}
"""What the examples of a task are."""

FURTHER = {
    "srl": {"verbs alone": "verbs_f1"},
    "coref": {"MUC": "muc_f1", "B³": "b3_f1", "CEAF-e": "ceafe_f1", "mentions": "mentions_f1"},
    "squad": {"exact match": "exact_match"},
}
"""Further scores of a task that its literature reports, by the names that they have there."""

NOTES = {
    "wnut17": "its own training, dev and test sets (Derczynski et al. 2017).",
    "wnut17-10": "the same, trained on a tenth of its training set, which an epoch repeats ten times.",
    "wikigold": "trained on the validation part of WikiNEuRal (Tedeschi et al. 2021). Its test part is the dev set. "
    "The labels of both were made automatically. Tested on WikiGold (Balasuriya et al. 2009). All of it is Wikipedia, "
    "and may be in the text of `en`.",
    "conll2002": "Spanish news of May 2000 (Tjong Kim Sang 2002): the dev set is `esp.testa`, the test set "
    "`esp.testb`. 309 of the 1,517 test sentences, 142 of them longer than five tokens, are also in the training set, "
    "on which both models were trained and `es-1M` was pretrained. So are 530 of the 1,915 sentences of the dev set, "
    "210 of them longer than five tokens.",
    "conll2002-10": "the same, trained on a tenth of its training set, which an epoch repeats four times.",
    "conll2002-1": "the same, trained on a hundredth of its training set, which an epoch repeats 39 times.",
    "sst5": "the Stanford Sentiment Treebank (Socher et al. 2013), the paper's own data.",
    "sst5-published": "the same. The recipe is as published, except that ELMo is at the input alone. Each training "
    "ended when its dev score had not risen for five epochs.",
    "sst2": "the sentences of `sst5` that aren't neutral.",
    "snli": "dev and test sets are SNLI's; the 75,784 pairs of the training set are of LingNLI, Wikipedia NLI, "
    "counterfactual SNLI, SICK and samples of SNLI, since SNLI's own isn't free to use here.",
    "snli-captions": "dev and test sets are SNLI's (Bowman et al. 2015). The training set has those 15,742 "
    "pairs free to use here that are of captions of pictures, as SNLI's are: of counterfactual SNLI, SICK and samples "
    "of SNLI.",
    "snli-captions-10": "the same, trained on a tenth of its training set, which an epoch repeats three times.",
    "propbank": "PropBank on the English Web Treebank (Pradhan et al. 2022), all predicates.",
    "propbank10": "the same, trained on a tenth of its training set.",
    "propbank1": "the same, trained on a hundredth of its training set, which an epoch repeats ten times.",
    "propbank0.1": "the same, trained on a thousandth of its training set, which an epoch repeats a hundred times.",
    "ontogum": "texts that are not in OntoNotes, annotated by its scheme (Zhu et al. 2021).",
    "ontogum-long": "the same, trained until the dev score had not risen for ten epochs, as in the published recipe.",
    "litbank": "beginnings of novels (Bamman et al. 2020), with clusters of a single mention; the text of `en` may "
    "hold some of them.",
    "litbank-long": "the same, trained until the dev score had not risen for ten epochs, as in the published recipe.",
    "squad": "trained on SQuADShifts (Miller et al. 2020): 19,688 questions about Amazon reviews and Reddit, and 914 "
    "about Wikipedia. Its 7,024 questions about 40 other articles of Wikipedia are the dev set, and the dev set of "
    "SQuAD 1.1 (Rajpurkar et al. 2016) is the test set. Its paragraphs of Wikipedia may be in the text of `en`. So "
    "this is also a change of domain, which the paper's SQuAD is not.",
}
"""Facts about the data that readers of the figures need."""


def write_page(root: Path) -> str:
    """Return the whole page in Markdown."""
    examples = read_examples(root)
    runs = [run for run in read_records(root) if run.task in PAPERS_TABLES]
    runs.sort(key=lambda run: (list(TASKS).index(run.task), examples.get(run.data, 0)))  # keeps the order of kinds
    if not runs:
        raise ElmoError(f"{root}: holds no record of a run; make some with benchmarks/experiments/paper_tasks.py")
    baselines = {run.data: run for run in runs if run.kind == BASELINE}
    machines = list(dict.fromkeys(result.machine for run in runs for result in run.results if result.machine))
    rows = [f"| {' | '.join(_row(run, baselines.get(run.data), examples, machines))} |" for run in runs]
    data = {run.data for run in runs}
    units = ", ".join(f"{UNITS[task]} of `{task}`" for task in dict.fromkeys(run.task for run in runs))
    gains = _all_gains(runs, baselines)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        summary=_summary(gains),
        sizes=_sizes(gains, examples),
        examples=textwrap.fill(f"- *Examples* are those of the training set: {units}.", 95, subsequent_indent="  "),
        rows="\n".join(rows),
        machines="; ".join(f"({number}) {machine}" for number, machine in enumerate(machines, 1)),
        further_scores=_further_scores(runs),
        papers_scores=_papers_scores(runs),
        notes="\n".join(f"- `{name}`: {note}" for name, note in NOTES.items() if name in data),
        commands="\n".join(f"```console\n{run.command}\n```" for run in runs),
    )


class Gain(NamedTuple):
    """A model with ELMo next to its baseline, both of which have test scores, and the share of errors it removes."""

    run: Run
    baseline: Run
    share: float


def _all_gains(runs: Iterable[Run], baselines: Mapping[str, Run]) -> list[Gain]:
    """Return the gains of all runs that can be compared with a baseline."""
    pairs = [(run, baselines[run.data]) for run in runs if run.kind != BASELINE and run.data in baselines]
    scored = [(run, baseline) for run, baseline in pairs if run.scores("test") and baseline.scores("test")]
    return [Gain(run, baseline, _share_removed(baseline, run)) for run, baseline in scored]


def _summary(gains: Sequence[Gain]) -> str:
    """Say how many errors ELMo removes, and in which tasks."""
    failed = {gain.run.data for gain in gains if gain.share <= 0}
    gained = [gain for gain in gains if gain.run.data not in failed]
    if not gained:
        return "No test score was higher with ELMo."
    points = [_points(gain.baseline, gain.run) for gain in gained]
    is_higher = [each > 0 for of_seeds in points for each in of_seeds]
    seeds = ""
    if all(points):  # each has a seed that its baseline had, too
        told = "every one of their seeds" if all(is_higher) else f"{sum(is_higher)} of their {len(is_higher)} seeds"
        seeds = f", in {told}"
    by_task = [
        f"{_range([gain.share for gain in gained if gain.run.task == task])} in {NAMES[task]}"
        for task in dict.fromkeys(gain.run.task for gain in gained)
    ]
    none = f" It removed none in {' and '.join(f'`{data}`' for data in sorted(failed))}." if failed else ""
    sets_gained, sets = ({(_training_set(gain.run), gain.run.share) for gain in each} for each in (gained, gains))
    whole_gained, num_whole = (sum(share == 1 for _, share in each) for each in (sets_gained, sets))
    parts = f" ({len(sets_gained)} of {len(sets)}, if parts of a set count as sets)" if len(sets) > num_whole else ""
    return textwrap.fill(
        f"With the same limit of epochs or minutes, test scores were higher with ELMo for {whole_gained} of "
        f"{num_whole} training sets{parts}{seeds}. There it removed {_range([gain.share for gain in gained])} of the "
        f"baseline's errors ({', '.join(by_task)}).{none} All seeds of a row share one biLM, so chance in its "
        "pretraining is not counted. Some baselines still improved when their training ended, so longer training "
        "would lower these gains ([below](#all-results)).",
        95,
        break_on_hyphens=False,
    )


def _range(shares: Sequence[float]) -> str:
    low, high = f"{min(shares):.1f}", f"{max(shares):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def _sizes(gains: Sequence[Gain], examples: Mapping[str, int]) -> str:
    """Return a paragraph with the test scores by the size of the training set, if models were trained on parts."""
    # The smallest part of a set comes first among all gains, and here the larger ones follow it.
    varied = list(dict.fromkeys((_training_set(gain.run), gain.run.kind) for gain in gains if gain.run.share < 1))
    rows = [
        f"| {NAMES[run.task]}{LANGUAGES.get(run.data, '')} | {examples.get(run.data, 0):,} {UNITS[run.task]} "
        f"| {_mean(baseline)} | {_mean(run)} | {_gain(baseline, run)} |\n"
        for each in varied
        for run, baseline, _ in gains
        if (_training_set(run), run.kind) == each
    ]
    if not rows:
        return ""
    return (
        "The size of some training sets was varied (means over seeds on the test set, F1 or accuracy):\n\n"
        "| task | training set | without ELMo | with ELMo | error reduction |\n|---|---|---|---|---|\n"
        f"{''.join(rows)}\n"
    )


def _training_set(run: Run) -> tuple[str, str]:
    """Return the task of a run, and the file that it was trained on, or on a share of it."""
    words = shlex.split(run.command)
    return run.task, words[words.index("--train") + 1]


def _mean(run: Run) -> str:
    return f"{spread(run.scores('test'))['mean']:.1f}"


def _further_scores(runs: Iterable[Run]) -> str:
    """Return a section with the other scores on test sets, for the runs that have some."""
    rows = [
        f"| {run.data} | {_kind(run)} | {', '.join(described)} |\n"
        for run in runs
        if (described := [f"{name} {mean_and_deviation(found)}" for name, found in _further(run, "test")])
    ]
    head = "## Further scores of test sets\n\n| data | | F1, and exact match |\n|---|---|---|\n"
    return f"{head}{''.join(rows)}\n" if rows else ""


def _further(run: Run, part: str) -> Iterator[tuple[str, list[float]]]:
    """Return the names and values of those scores of a set that are in `FURTHER`."""
    found = run.all_scores(part)
    return ((name, found[key]) for name, key in FURTHER.get(run.task, {}).items() if key in found)


def _papers_scores(runs: Iterable[Run]) -> str:
    """Return a table of the paper's own scores in the tasks of these runs."""
    tables = {run.task: PAPERS_TABLES[run.task] for run in runs}
    columns = list(dict.fromkeys(column for _, scores in tables.values() for column in scores))
    rows = [
        f"| {task} | {name} | {' | '.join(str(scores.get(column, '')) for column in columns)} |"
        for task, (name, scores) in tables.items()
    ]
    return "\n".join([f"| task | in the paper | {' | '.join(columns)} |", f"|---|---|{'---|' * len(columns)}", *rows])


def _row(run: Run, baseline: Run | None, examples: Mapping[str, int], machines: Sequence[str]) -> list[str]:
    test, dev = run.scores("test"), run.scores("dev")
    is_baseline, own = run is baseline, {result.machine for result in run.results}
    number = f"{examples[run.data]:,}" if run.data in examples else ""
    return [
        *([run.data, run.task, number] if is_baseline or baseline is None else ["", "", ""]),
        _kind(run),
        run.metric,
        mean_and_deviation(dev),
        mean_and_deviation(test) if test else "",
        "" if is_baseline or baseline is None or not test else _gain(baseline, run),
        "" if is_baseline else _published(run),
        str(len(run.results)),
        run.minutes(),
        ", ".join(f"({number})" for number, machine in enumerate(machines, 1) if machine in own),
    ]


def _kind(run: Run) -> str:
    return {BASELINE: "baseline", "elmo": "+ ELMo"}.get(run.kind, f"+ {run.kind}")


def _gain(baseline: Run, run: Run) -> str:
    """Return the relative error reduction and the points gained, with their deviation if the two have the same seeds.

    The scores of a seed rise and fall together with ELMo and without, so the gain varies less than either score.
    """
    before, after = baseline.scores("test"), run.scores("test")
    if not before:
        return ""
    points = f"{spread(after)['mean'] - spread(before)['mean']:+.2f}"
    if len(gains := _points(baseline, run)) == len(after) == len(before) > 1:
        points += f" ± {spread(gains)['sd']:.2f}"
    return f"**{_share_removed(baseline, run):.1f} %** ({points})"


def _share_removed(baseline: Run, run: Run) -> float:
    """Return the share of the baseline's errors on the test set that a run does not make, in percent."""
    before, after = (spread(one.scores("test"))["mean"] for one in (baseline, run))
    return 100 * error_reduction(before, after)


def _points(baseline: Run, run: Run) -> list[float]:
    """Return the points that each seed gains on the test set, of those seeds that both models had."""
    before, after = (
        {result.seed: score for result, score in zip(one.results, one.scores("test"), strict=True)}
        for one in (baseline, run)
    )
    return [score - before[seed] for seed, score in after.items() if seed in before]


def error_reduction(before: float, after: float) -> float:
    """Return the relative reduction of the error, which is what a score lacks to 100."""
    return (after - before) / (100 - before)


def _published(run: Run) -> str:
    """Return the paper's reduction. It has none for sentiment with two labels."""
    if run.recipe.get("binary"):
        return ""
    _, scores = PAPERS_TABLES[run.task]
    return f"{100 * error_reduction(scores['baseline'], scores['+ ELMo']):.1f} %"


@script
def main() -> None:
    """Read the records and write the page."""
    write_page_of_records(__doc__, "docs/results.md", write_page)


if __name__ == "__main__":
    main()
