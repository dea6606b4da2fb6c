"""Write docs/results.md: the paper's tasks without ELMo and with it, from the records of finished trainings.

    python benchmarks/experiments/paper_tasks.py runs/ --vectors static50.txt static100.txt static300.txt --only sst5
    python benchmarks/pages/results.py docs/results.md

The first command trains, and writes what this page needs from each run folder: `runs/records/DATA/none.json` for a
baseline without ELMo, and `runs/records/DATA/elmo.json`, or another name, for a model with ELMo. The second one reads
records in `benchmarks/records`, or in the folder of `--records`. Seeds, scores, times, machines and commands are from
there. The paper's scores, and what the section about sizes of data says, are written in this script.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from elmo.errors import ElmoError
from elmo.tasks.card import mean_and_deviation, spread

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.records import BASELINE, Run, read_records, write_page_of_records
from common.script import script

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

HEAD = """\
# Results on the paper's tasks

What does ELMo bring to the paper's tasks? Each task of Peters et al. 2018 was trained on
free data, without ELMo (the baseline) and with it, and scored on test sets.

$summary

[Train task models](tasks.md) says what the tasks `ner`, `sst` and so on are, and which files
they read. To repeat a row, get its [data](#data) and run its two [commands](#commands). We may
not pass the data on: get each set from its publishers, in the format that its task reads. The
names of files are ours. `paper_tasks.py` makes `snli-captions.jsonl` from `nli/train.jsonl.xz`,
a file of pairs with their sources, which no script collects.

- *Dev* and *test* are the mean and the standard deviation over seeds. Each seed is a training
  of its own.
- *Fewer errors* is the share of the baseline's errors that ELMo removes. The points gained
  follow. Their deviation is that of the gain over the seeds that both models had.
- *In the paper* is that share by the paper's Table 1, on the paper's data.
- *Minutes* are those of the shortest and the longest training of a seed on the machines of those
  numbers, without computing cached ELMo vectors. They are rough even on the same machine, since
  other programs ran at the same time.
- `en-61M` is the package's `en`, which has read 61 M tokens. `en-15M` is its first version,
  which had read 15 M (in the repository before commit 0a4ba28). `es-1M` was pretrained in 71
  minutes of one thread on [a million tokens of
  Spanish](lab-notes.md#spanish-names-with-a-bilm-of-a-million-tokens): the sentences of the
  training set, and three times as much news.
- Both models of a data set had the same limit of epochs, and reached it. Those of WNUT-17
  ended earlier, when the dev score had not risen for ten epochs. `training.max_minutes` ended
  no training.
- Static word vectors (`words.vectors`) were learned from the text that the biLM was pretrained
  on: `elmo static corpus staticN.txt --dim N --epochs E`. In English, E = 2 for N = 50, and E = 1
  for the others; in Spanish, E = 5.

`benchmarks/experiments/paper_tasks.py` trained the models, and `benchmarks/pages/results.py`
wrote this page. The options in the commands show what differs from the published recipes.

| data | task | | score | dev | test | fewer errors | in the paper | seeds | minutes | machine |
|---|---|---|---|---|---|---|---|---|---|---|
"""

WHY = """\
## Does ELMo help more with little training data?

In the two tasks where the size of the training set was varied, ELMo helps more with less of it.
On PropBank, it gains 15.0 points of F1 with a hundredth, 12.2 with a tenth and 5.7 with all
(20.4, 22.9 and 17.4 % of the errors). On the dev set of WNUT-17, it gains [15.0 points with a
tenth, and 8.2 with all](analysis.md#sample-efficiency-section-54-figure-1) (one seed). But with
34 sentences of WNUT-17, neither model is of use (F1 of 11.6 and 1.2), nor with 40 predicates of
PropBank (15.6 and 9.3). From one task to another, the size of the training set does not tell
how much ELMo helps. The training curves show the following, task by task:

- **Names.** A tenth of WNUT-17 with ELMo is worth all of it without: both have an F1 of 39.7
  on the dev set ([curve](lab-notes.md#figure-1-training-on-few-examples-ended-too-early)). The
  names of its test set were chosen because they are rare or new. Four times as much
  pretraining [gains nothing on it](lab-notes.md#names-with-the-third-version-of-en). Its tweets
  and posts are unlike the text of `en`. On WikiGold, the longer pretraining seems to gain a
  point (one seed with the first version of `en`). A biLM of [a million tokens of
  Spanish](lab-notes.md#spanish-names-with-a-bilm-of-a-million-tokens) gains 1.3 points on the
  Spanish names of CoNLL 2002, and 3.7 on their dev set. There the model with ELMo is better after
  ten of fifteen epochs than the baseline ever is.
- **Roles.** ELMo removes as large a share of the errors as in the paper. With ELMo, the model
  is better after three of its twelve epochs [than the baseline ever
  is](lab-notes.md#propbank-with-three-seeds-as-many-errors-fewer-as-in-the-paper). ELMo is worth
  [5.6 times as many examples](lab-notes.md#roles-from-a-hundredth-of-propbank-and-from-a-tenth)
  where there is a hundredth of PropBank, and 3.9 times where there is a tenth.
- **Coreference.** On LitBank, both models have [stopped rising after fifteen of twenty
  epochs](lab-notes.md#litbank-with-three-seeds-to-the-end-of-its-curve). Three quarters of its
  clusters are a single mention. Such a model never predicts these, so they count as errors
  with ELMo and without. Scored without them, as in the paper's data, the same models gain 2.3
  points, 5.4 % of the errors. OntoGUM is annotated as the paper's data are, and there ELMo
  removes nearly as large a share of the errors as in the paper. After nine of twenty epochs,
  the model with ELMo is [better than the baseline ever
  is](lab-notes.md#ontogum-with-three-seeds-nearly-as-many-errors-fewer-as-in-the-paper). Both
  still improve at the end.
- **Questions.** In each of the three seeds, the model with ELMo is better after four of six
  epochs [than the baseline ever
  is](lab-notes.md#squad-in-six-epochs-a-seventh-of-the-errors-fewer). It removes 13.4 % of the
  errors (24.9 % in the paper). Both models still improve at the end, and the difference between
  them still shrinks.
- **Sentiment.** ELMo helps in [each of the five
  seeds](lab-notes.md#sentiment-in-two-epochs), but by less than in the paper. Both models
  made two epochs at ten times the published rate, and in some seeds the second epoch was worse
  than the first. So these trainings were too short, and their learning rate too high, to
  compare them with the paper.
- **Entailment.** With ELMo the model learns faster at first, but [ends no
  better](lab-notes.md#entailment-on-captions-with-three-seeds-a-quick-start-and-no-gain). After
  six epochs, the model with ELMo is seventeen points ahead; after eighteen epochs, both are
  level. A likely reason is that captions consist of few and common words, which the training
  set itself teaches. Other places for ELMo, other penalties and other dropouts [did not change
  that](lab-notes.md#entailment-with-elmo-other-places-penalties-and-dropouts).

The shares of the paper come from a biLM that is 14 times as large and read a billion words ten
times.

"""

PAPERS_NOTE = """\
These are scores of test sets, from Tables 8 to 13 of Peters et al. 2018. They are of single models unless a number of
models is given. *Best before* is the best single model that each table lists from other authors. Only SST-5 is the same
data as here, so only its row can be compared score by score."""

COMMANDS_NOTE = """\
Folders are left out: each training had its own `--out`. If a key is set twice, the last value counts. The commands are
in the order of the table's rows, and `en` is the version of the model that the row names. `bilm` is `es-1M`."""

FURTHER = {
    "srl": {"verbs alone": "verbs_f1"},
    "coref": {"MUC": "muc_f1", "B³": "b3_f1", "CEAF-e": "ceafe_f1", "mentions": "mentions_f1"},
    "squad": {"exact match": "exact_match"},
}
"""Further scores of a task that its literature reports, by the names that they have there."""

NOTES = {
    "wnut17": "its own training, development and test sets (Derczynski et al. 2017).",
    "wikigold": "trained and tuned on WikiNEuRal (Tedeschi et al. 2021), whose labels were made automatically; tested "
    "on WikiGold (Balasuriya et al. 2009).",
    "conll2002": "Spanish news of May 2000 (Tjong Kim Sang 2002), tuned on `esp.testa`, tested on `esp.testb`.",
    "sst5": "the Stanford Sentiment Treebank (Socher et al. 2013), the paper's own data.",
    "sst2": "the sentences of `sst5` that aren't neutral.",
    "snli": "development and test sets are SNLI's; the 75,784 pairs of the training set are of LingNLI, Wikipedia NLI, "
    "counterfactual SNLI, SICK and samples of SNLI, since SNLI's own isn't free to use here.",
    "snli-captions": "development and test sets are SNLI's (Bowman et al. 2015). The training set has those 15,742 "
    "pairs free to use here that are of captions of pictures, as SNLI's are: of counterfactual SNLI, SICK and samples "
    "of SNLI.",
    "propbank": "PropBank on the English Web Treebank (Pradhan et al. 2022), all predicates.",
    "propbank10": "the same, trained on a tenth of its training set.",
    "propbank1": "the same, trained on a hundredth of its training set, which an epoch repeats ten times.",
    "propbank0.1": "the same, trained on a thousandth of its training set, which an epoch repeats a hundred times.",
    "ontogum": "texts that are not in OntoNotes, annotated by its scheme (Zhu et al. 2021).",
    "litbank": "beginnings of novels (Bamman et al. 2020), with clusters of a single mention; the text of `en` may "
    "hold some of them.",
    "squad": "trained and tuned on SQuADShifts (Miller et al. 2020), tested on the development set of SQuAD 1.1 "
    "(Rajpurkar et al. 2016), whose paragraphs of Wikipedia may be in the text of `en`.",
}
"""Facts about the data that readers of the figures need."""


def write_page(root: Path) -> str:
    """Return the whole page in Markdown."""
    runs = [run for run in read_records(root) if run.task in PAPERS_TABLES]
    if not runs:
        raise ElmoError(f"{root}: holds no record of a run; make some with benchmarks/experiments/paper_tasks.py")
    baselines = {run.data: run for run in runs if run.kind == BASELINE}
    machines = list(dict.fromkeys(result.machine for run in runs for result in run.results if result.machine))
    rows = "".join(f"| {' | '.join(_row(run, baselines.get(run.data), machines))} |\n" for run in runs)
    commands = "".join(f"```console\n{run.command}\n```\n" for run in runs)
    data = {run.data for run in runs}
    notes = "".join(f"- `{name}`: {note}\n" for name, note in NOTES.items() if name in data)
    named = "; ".join(f"({number}) {machine}" for number, machine in enumerate(machines, 1))
    body = f"{rows}\nMachines: {named}.\n\n{_further_scores(runs)}"
    head = HEAD.replace("$summary", _summary(runs, baselines))
    return f"{head}{body}{WHY}{_papers_scores(runs)}## Data\n\n{notes}\n## Commands\n\n{COMMANDS_NOTE}\n\n{commands}"


def _summary(runs: Iterable[Run], baselines: Mapping[str, Run]) -> str:
    """Say how many errors ELMo removes."""
    shares = {
        (run.data, run.kind): 100 * error_reduction(spread(before)["mean"], spread(after)["mean"])
        for run in runs
        if run.kind != BASELINE
        and (before := baselines[run.data].scores("test") if run.data in baselines else [])
        and (after := run.scores("test"))
    }
    gained = {data for data, _ in shares} - {data for (data, _), share in shares.items() if share <= 0}
    if not gained:
        return "No test score was higher with ELMo."
    removed = [share for (data, _), share in shares.items() if data in gained]
    return textwrap.fill(
        f"Test scores were higher with ELMo for {len(gained)} of {len({data for data, _ in shares})} training sets. "
        f"There it removed {min(removed):.1f} to {max(removed):.1f} % of the baseline's errors. Small gains with a "
        "single seed may be due to chance.",
        95,
    )


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
    """Return a section with the paper's own scores in the tasks of these runs."""
    tasks = list(dict.fromkeys(run.task for run in runs if run.task in PAPERS_TABLES))
    columns = list(dict.fromkeys(column for task in tasks for column in PAPERS_TABLES[task][1]))
    head = f"| task | in the paper | {' | '.join(columns)} |\n|---|---|{'---|' * len(columns)}\n"
    rows = [
        f"| {task} | {name} | {' | '.join(str(scores.get(column, '')) for column in columns)} |\n"
        for task, (name, scores) in ((task, PAPERS_TABLES[task]) for task in tasks)
    ]
    return f"## The paper's own scores\n\n{PAPERS_NOTE}\n\n{head}{''.join(rows)}\n" if rows else ""


def _row(run: Run, baseline: Run | None, machines: Sequence[str]) -> list[str]:
    test, dev = run.scores("test"), run.scores("dev")
    is_baseline, own = run is baseline, {result.machine for result in run.results}
    return [
        run.data if is_baseline or baseline is None else "",
        run.task if is_baseline or baseline is None else "",
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
    base, mean = spread(before)["mean"], spread(after)["mean"]
    points = f"{mean - base:+.2f}"
    if len(after) > 1 and [result.seed for result in run.results] == [result.seed for result in baseline.results]:
        gains = [score - other for score, other in zip(after, before, strict=True)]
        points += f" ± {spread(gains)['sd']:.2f}"
    return f"**{100 * error_reduction(base, mean):.1f} %** ({points})"


def error_reduction(before: float, after: float) -> float:
    """Return the relative reduction of the error, which is what a score lacks to 100."""
    return (after - before) / (100 - before)


def _published(run: Run) -> str:
    """Return the paper's reduction. It has none for sentiment with two labels."""
    if run.task not in PAPERS_TABLES or run.recipe.get("binary"):
        return ""
    _, scores = PAPERS_TABLES[run.task]
    return f"{100 * error_reduction(scores['baseline'], scores['+ ELMo']):.1f} %"


@script
def main() -> None:
    """Read the records and write the page."""
    write_page_of_records(__doc__, "docs/results.md", write_page)


if __name__ == "__main__":
    main()
