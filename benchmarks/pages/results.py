"""Write docs/results.md: the paper's tasks without ELMo and with it, from the records of finished trainings.

    python benchmarks/experiments/paper_tasks.py runs/ --vectors static50.txt static100.txt static300.txt --only sst5
    python benchmarks/pages/results.py docs/results.md

The first command trains, and writes what this page needs from each run folder: `runs/records/DATA/none.json` for a
baseline without ELMo, and `runs/records/DATA/elmo.json`, or another name, for a model with ELMo. The second one reads
records in `benchmarks/records`, or in the folder of `--records`. Seeds, scores, times, machines and commands are from
there. The paper's scores, and what the section about sizes of data says, are written in this script.
"""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from elmo.errors import ElmoError
from elmo.tasks import TASKS
from elmo.tasks.results import mean_and_deviation, spread

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.records import BASELINE, Run, read_examples, read_records, write_page_of_records
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

What does ELMo bring to the paper's tasks, and with how much training data? For each task of
Peters et al. 2018, models were trained on free data, without ELMo (the baseline) and with it,
and scored on test sets.

$summary

$sizes

## All results

[Train task models](tasks.md) says what the tasks `ner`, `sst` and so on are, and which files
they read. To repeat a row, get its [data](#data) and run its two [commands](#commands). We may
not pass the data on: get each set from its publishers, in the format that its task reads. The
names of files are ours. `paper_tasks.py` makes `snli-captions.jsonl` from `nli/train.jsonl.xz`,
a file of pairs with their sources, which no script collects.

$examples
- *Dev* and *test* are the mean and the standard deviation over seeds, with the weights of the
  epoch that was best on the dev set. Each seed is a training of its own.
- *Error reduction* is the share of the baseline's errors that ELMo removes, where the error is 100
  minus the score, for F1 as well. The points gained follow. Their deviation is that of the gain
  over the seeds that both models had. All deviations are over seeds alone. Another sample of test
  sentences would change the scores, too: those of SST-5, with 2,210 sentences, by about a point.
- *In the paper* is the same (relative) reduction by the paper's Table 1, on the paper's data.
- *Minutes* are those of the shortest and the longest training of a seed on the machines of the
  last column, without computing cached ELMo vectors. They are rough even on the same machine, since
  other programs ran at the same time.
- `en-61M` is the package's `en`, which has read 61 M tokens of a text of 69 M. `en-15M` is its
  first version, which had read 15 M (in the repository before commit 0a4ba28). `es-1M` is named
  after its text: [a million tokens of
  Spanish](lab-notes.md#spanish-names-with-a-bilm-of-a-million-tokens), the sentences of the
  training set and three times as much news, read ten times in 71 minutes of one thread.
- Both models of a data set had the same limit of epochs. All reached it except those of WNUT-17,
  `wnut17-10`, `snli-captions-10` and `sst5-published`, which ended when the dev score had not risen
  for ten epochs (names) or five. `training.max_minutes` ended no training.
- ELMo learns faster. So a limit of epochs favors it where the baseline still rises: all baselines
  of WikiGold and of `snli-captions` are best in their last epoch, two of three of `conll2002`, three
  of five of `sst5`, and both models of `squad`. Longer training would probably lower these gains. An
  epoch with ELMo also takes longer.
- The examples of a part of a training set are the same for all seeds, so chance in drawing them is
  not counted. The epoch was chosen by the whole dev set, which somebody with so few examples would
  not have. `propbank0.1` and `propbank1` are in float32, and the larger parts of PropBank in bf16.
- The row `en-15M` of WikiGold is one seed in float32; it gains 3.23 points over the same seed of
  the baseline, which is in bf16. In `squad`, `training.precision=bf16` has no effect.
- Static word vectors (`words.vectors`) were learned from the text that the biLM was pretrained
  on: `elmo static corpus staticN.txt --dim N --epochs E`. In English, E = 2 for N = 50, and E = 1
  for the others; in Spanish, E = 5.

`benchmarks/experiments/paper_tasks.py` trained the models, and `benchmarks/pages/results.py`
wrote this page. The options in the commands show what differs from the published recipes.

| data | task | examples | | score | dev | test | error reduction | in the paper | seeds | minutes | machine |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""

WHY = """\
## Does ELMo help more with little training data?

Yes, but not with the least. In names, semantic roles and entailment, ELMo gains more with a tenth
of a training set than with all of it: 16.0 points instead of 7.0, 12.2 instead of 5.7, and 5.7
instead of none. (In roles, it gains most with a hundredth: 15.0.) A tenth of WNUT-17, 339
sentences, is worth more with ELMo than all 3,394 without. With the least, neither model is of use:
with 40 predicates, a thousandth of PropBank, or with 34 sentences, a hundredth of WNUT-17 (F1 [of
11.6 with ELMo, and 1.2 without](analysis.md#sample-efficiency-section-54-figure-1), on the dev set,
one seed). From one task to another, the size of the training set does not tell how much ELMo helps.
The training curves show the following, task by task:

- **Names.** A [tenth of WNUT-17](lab-notes.md#names-and-entailment-from-a-tenth-of-the-training-set)
  with ELMo is worth more than all of it without: the F1 on the test set is 31.0 instead of 28.6, in
  five seeds. The names of that set were chosen because they are rare or new. Four times as much
  pretraining [gains nothing](lab-notes.md#names-with-the-third-version-of-en) on the test set, and 2.0
  points on the dev set. The tweets and posts of WNUT-17 are unlike the text of `en`. On WikiGold, the
  longer pretraining seems to gain a point (one seed with the first version of `en`). A biLM of [a million tokens of
  Spanish](lab-notes.md#spanish-names-with-a-bilm-of-a-million-tokens) gains 1.3 points on the
  Spanish names of CoNLL 2002, and 3.7 on their dev set. On that dev set, the model with ELMo is
  better after ten of fifteen epochs than the baseline ever is.
- **Roles.** On all of PropBank, ELMo removes 17.4 % of the errors. The paper has 17.2 %, with
  other data, a larger model, and a baseline of 81.4 instead of 67.4. With ELMo, the model is
  better after three of its twelve epochs [than the baseline ever
  is](lab-notes.md#propbank-with-three-seeds-the-error-reduction-of-the-paper). With the published
  size and optimizer, training is [slower by
  far](lab-notes.md#roles-at-the-published-size-the-recipes-clipping-let-a-training-diverge). ELMo is worth
  about [5.6 times as many examples](lab-notes.md#roles-from-a-hundredth-of-propbank-and-from-a-tenth)
  where there is a hundredth of PropBank, and 3.9 times where there is a tenth. This is
  interpolated linearly between the baseline's scores, over the logarithm of the size; the whole was
  trained for four times as many steps as its parts.
- **Coreference.** On LitBank, both models have [nearly stopped rising after fifteen of twenty
  epochs](lab-notes.md#litbank-with-three-seeds-to-the-end-of-its-curve). Three quarters of its
  clusters are a single mention. Neither model ever predicts these, so all of them count as
  errors. Scored without them, as in the paper's data, the same models gain 2.3
  points, 5.4 % of the errors. OntoGUM is annotated as the paper's data are, and there ELMo
  removes 8.7 % of the errors (9.8 % in the paper). After nine of twenty epochs, the model with ELMo
  is [better than the baseline ever
  is](lab-notes.md#ontogum-with-three-seeds-nearly-the-error-reduction-of-the-paper). Both still
  improve at the end.
- **Questions.** In each of the three seeds, the model with ELMo is better after four of six
  epochs [than the baseline ever
  is](lab-notes.md#squad-in-six-epochs-a-seventh-fewer-errors). It removes 13.4 % of the
  errors (24.9 % in the paper). Both models still improve at the end, and the difference between
  them still shrinks. [Five models with ELMo](lab-notes.md#questions-answered-by-five-models-together)
  that predict together gain 0.8 points over the best of them (after three epochs).
- **Sentiment.** ELMo helps in [each of the five
  seeds](lab-notes.md#sentiment-in-two-epochs), but by less than in the paper. Both models
  made two epochs at ten times the published rate, and in some seeds the second epoch was worse
  than the first. [At the published
  rate](lab-notes.md#sentiment-at-the-published-rate-with-elmo-at-the-input), one seed of each model
  was trained until its dev score had not risen for five epochs (`sst5-published`), with ELMo at the
  input alone, which is [as good](lab-notes.md#where-to-put-elmo-for-sentiment-with-three-seeds) as at
  both places. Both models became two points better, and the gain on the test set stayed the same:
  1.4 points. On the dev set, ELMo is 1.5 points behind. One seed can't show so small a gain. Longer
  training alone does not explain why it is larger in the paper.
- **Entailment.** With ELMo the model learns faster at first, but [ends no
  better](lab-notes.md#entailment-on-captions-with-three-seeds-a-quick-start-and-no-gain). After
  six epochs, the model with ELMo is seventeen points ahead; after eighteen epochs, neither is
  ahead. With [a tenth of the
  pairs](lab-notes.md#names-and-entailment-from-a-tenth-of-the-training-set), ELMo does end better:
  51.8 instead of 46.0. A likely reason is that captions consist of few and common words, which the
  whole training set teaches by itself, and a tenth of it does not. With the whole set, other places
  for ELMo, other penalties and other dropouts [did not change
  that](lab-notes.md#entailment-with-elmo-other-places-penalties-and-dropouts). [Four models with
  ELMo](lab-notes.md#entailment-answered-by-four-models-together) that predict together gain 0.5
  points over the best of them (after eight epochs). Of the models of this table, three without ELMo
  have 70.3 together, and three with it 68.8.

Compare these shares with the paper's by their rank only. The paper's biLM is 14 times as
large, read 769 million tokens ten times, and was in most cases fine-tuned on the text of the
task, which ours was not. The paper's baselines have word vectors from far more text than ours,
and were trained to their end. So the two shares are of different errors.

"""

PAPERS_NOTE = """\
These are scores of test sets, from Tables 1 and 8 to 13 of Peters et al. 2018. They are of single models unless a
number of models is given; those of NER, SNLI and SST-5 with ELMo are means over five seeds (± 0.10, 0.17 and 0.5).
*Best before* is the best single model that each table lists from before ELMo. Only SST-5 has the same training and
test data as here. Our baseline there is 7.7 points worse (`sst5-published`); the paper's has word vectors from far
more text."""

COMMANDS_NOTE = """\
Names of folders are shortened: each training had its own `--out`. If a key is set twice, the last value counts. The
commands are in the order of the table's rows, and `en` is the version of the model that the row names. `bilm` is
`es-1M`."""

NAMES = {
    "ner": "names",
    "sst": "sentiment",
    "snli": "entailment",
    "srl": "semantic roles",
    "coref": "coreference",
    "squad": "questions",
}
"""The tasks, as the page calls them."""

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
    "wnut17": "its own training, development and test sets (Derczynski et al. 2017).",
    "wnut17-10": "the same, trained on a tenth of its training set, which an epoch repeats ten times.",
    "wikigold": "trained on the validation part of WikiNEuRal (Tedeschi et al. 2021) and tuned on its test part, whose "
    "labels were made automatically; tested on WikiGold (Balasuriya et al. 2009). All of it is Wikipedia, and may "
    "be in the text of `en`.",
    "conll2002": "Spanish news of May 2000 (Tjong Kim Sang 2002), tuned on `esp.testa`, tested on `esp.testb`. 309 of "
    "the 1,517 test sentences, 142 of them longer than five tokens, are also in the training set, on which both models "
    "were trained and `es-1M` was pretrained. So are 530 of the 1,915 sentences of `esp.testa`, 210 of them longer "
    "than five tokens.",
    "conll2002-10": "the same, trained on a tenth of its training set, which an epoch repeats four times.",
    "sst5": "the Stanford Sentiment Treebank (Socher et al. 2013), the paper's own data.",
    "sst5-published": "the same. The recipe is as published, except that ELMo is at the input alone. Each training "
    "ended when its dev score had not risen for five epochs.",
    "sst2": "the sentences of `sst5` that aren't neutral.",
    "snli": "development and test sets are SNLI's; the 75,784 pairs of the training set are of LingNLI, Wikipedia NLI, "
    "counterfactual SNLI, SICK and samples of SNLI, since SNLI's own isn't free to use here.",
    "snli-captions": "development and test sets are SNLI's (Bowman et al. 2015). The training set has those 15,742 "
    "pairs free to use here that are of captions of pictures, as SNLI's are: of counterfactual SNLI, SICK and samples "
    "of SNLI.",
    "snli-captions-10": "the same, trained on a tenth of its training set, which an epoch repeats three times.",
    "propbank": "PropBank on the English Web Treebank (Pradhan et al. 2022), all predicates.",
    "propbank10": "the same, trained on a tenth of its training set.",
    "propbank1": "the same, trained on a hundredth of its training set, which an epoch repeats ten times.",
    "propbank0.1": "the same, trained on a thousandth of its training set, which an epoch repeats a hundred times.",
    "ontogum": "texts that are not in OntoNotes, annotated by its scheme (Zhu et al. 2021).",
    "litbank": "beginnings of novels (Bamman et al. 2020), with clusters of a single mention; the text of `en` may "
    "hold some of them.",
    "squad": "trained on SQuADShifts (Miller et al. 2020): 19,688 questions about Amazon reviews and Reddit, and 914 "
    "about Wikipedia. Tuned on its 7,024 questions about 40 other articles of Wikipedia, and tested on the development "
    "set of SQuAD 1.1 (Rajpurkar et al. 2016), whose paragraphs of Wikipedia may be in the text of `en`. So this is "
    "also a change of domain, which the paper's SQuAD is not.",
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
    rows = "".join(f"| {' | '.join(_row(run, baselines.get(run.data), examples, machines))} |\n" for run in runs)
    commands = "".join(f"```console\n{run.command}\n```\n" for run in runs)
    data = {run.data for run in runs}
    notes = "".join(f"- `{name}`: {note}\n" for name, note in NOTES.items() if name in data)
    named = "; ".join(f"({number}) {machine}" for number, machine in enumerate(machines, 1))
    body = f"{rows}\nMachines: {named}.\n\n{_further_scores(runs)}"
    units = ", ".join(f"{UNITS[task]} of `{task}`" for task in dict.fromkeys(run.task for run in runs))
    units = textwrap.fill(f"- *Examples* are those of the training set: {units}.", 95, subsequent_indent="  ")
    gains = _all_gains(runs, baselines)
    sizes = _sizes(gains, examples)
    head = HEAD.replace("$summary", _summary(gains)).replace("$examples", units)
    head = head.replace("$sizes\n\n", f"{sizes}\n" if sizes else "")
    return f"{head}{body}{WHY}{_papers_scores(runs)}## Data\n\n{notes}\n## Commands\n\n{COMMANDS_NOTE}\n\n{commands}"


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
    every_seed = all(min(_points(gain.baseline, gain.run), default=0) > 0 for gain in gained)
    seeds = ", in every one of their seeds" if every_seed else ""
    by_task = [
        f"{_range([gain.share for gain in gained if gain.run.task == task])} in {NAMES[task]}"
        for task in dict.fromkeys(gain.run.task for gain in gained)
    ]
    none = f" It removed none in {', '.join(f'`{data}`' for data in sorted(failed))}." if failed else ""
    sets_gained, sets = ({(_training_set(gain.run), _share(gain.run)) for gain in each} for each in (gained, gains))
    whole_gained, num_whole = (sum(share == 1 for _, share in each) for each in (sets_gained, sets))
    parts = f" ({len(sets_gained)} of {len(sets)}, if parts of a set count as sets)" if len(sets) > num_whole else ""
    return textwrap.fill(
        f"With the same limit of epochs, test scores were higher with ELMo for {whole_gained} of {num_whole} "
        f"training sets{parts}{seeds}. There it removed {_range([gain.share for gain in gained])} of the baseline's "
        f"errors ({', '.join(by_task)}).{none} All seeds of a row share one biLM, so chance in its pretraining is not "
        "counted. Some baselines still improved when their training ended, so longer training would lower these gains "
        "([below](#all-results)).",
        95,
        break_on_hyphens=False,
    )


def _range(shares: Sequence[float]) -> str:
    low, high = f"{min(shares):.1f}", f"{max(shares):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def _sizes(gains: Sequence[Gain], examples: Mapping[str, int]) -> str:
    """Return a table of the test scores by the size of the training set, for the models that were trained on parts."""
    varied = {(_training_set(gain.run), gain.run.kind) for gain in gains if _share(gain.run) < 1}
    rows = [
        f"| {NAMES[run.task]} | {examples.get(run.data, 0):,} {UNITS[run.task]} | {_mean(baseline)} | {_mean(run)} "
        f"| {_gain(baseline, run)} |\n"
        for run, baseline, _ in gains
        if (_training_set(run), run.kind) in varied
    ]
    if not rows:
        return ""
    return (
        "The size of some training sets was varied (means over seeds on the test set, F1 or accuracy):\n\n"
        "| task | training set | without ELMo | with ELMo | error reduction |\n|---|---|---|---|---|\n"
        f"{''.join(rows)}"
    )


def _share(run: Run) -> float:
    """Return the share of the training set that a run was trained on. Records of before the key existed have none."""
    return run.recipe["training"].get("share", 1)


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
    """Return a section with the paper's own scores in the tasks of these runs."""
    tasks = list(dict.fromkeys(run.task for run in runs if run.task in PAPERS_TABLES))
    columns = list(dict.fromkeys(column for task in tasks for column in PAPERS_TABLES[task][1]))
    head = f"| task | in the paper | {' | '.join(columns)} |\n|---|---|{'---|' * len(columns)}\n"
    rows = [
        f"| {task} | {name} | {' | '.join(str(scores.get(column, '')) for column in columns)} |\n"
        for task, (name, scores) in ((task, PAPERS_TABLES[task]) for task in tasks)
    ]
    return f"## The paper's own scores\n\n{PAPERS_NOTE}\n\n{head}{''.join(rows)}\n" if rows else ""


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
