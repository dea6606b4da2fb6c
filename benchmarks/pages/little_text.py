"""Write docs/little-text.md: taggers on little text without ELMo and with it, from the records of finished trainings.

    python benchmarks/experiments/little_text.py runs/ --only got fro san hbo
    python benchmarks/pages/little_text.py docs/little-text.md

The first command trains, and writes what this page needs to `runs/records/SET/`: `none.json` and `elmo.json` of the
taggers, `bilm/elmo.json` of the pretraining. The second one reads records in `benchmarks/records`, or in the folder of
`--records`. All figures of the page but the published ones are from there. Most of the prose is in `little_text.md`
next to this script.
"""

from __future__ import annotations

import statistics
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, cast

from scipy.stats import t as student
from scipy.stats import ttest_rel

from elmo.analysis.pictures import Series, draw_curves, new_figure, save_figure
from elmo.errors import ElmoError
from elmo.formats.files import read_json, write_all
from elmo.tasks.results import mean_and_deviation

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.records import BASELINE, STATIC, Run, read_records, write_page_of_records
from common.script import script

TEMPLATE = Path(__file__).with_suffix(".md")

SCORES = {"UPOS": "upos", "UFeats": "feats", "lemmas": "lemma"}

PUBLISHED = {
    "got": ("LiBERTus", (95.14, 88.64, 91.42)),
    "fro": ("LiBERTus", (89.05, 91.19, 84.43)),
    "san": ("LiBERTus", (88.75, 81.13, 81.68)),
    "szeged": ("hu_core_news_md", (96.3, 92.9, 97.3)),
}
"""Published scores to compare with, in the order of `SCORES`."""

DATA = {
    "got": "Gothic, 44,044 tokens (PROIEL)",
    "fro": "Old French, 38,460 tokens",
    "san": "Vedic Sanskrit, 21,786 tokens",
    "hbo": "Ancient Hebrew, 31,517 tokens",
    "ewt": "English, 204,577 tokens (EWT); the package's `en`",
}
"""What each set of the first table is, in the order of the page."""

ENGLISH = "ewt"
"""The set of `DATA` that is no little text, and whose biLM read far more. It is left out of the summary's counts."""

NOVELS = {
    "szeged-20k": "20 thousand",
    "szeged-100k": "100 thousand",
    "szeged-1M": "1 million",
    "szeged": "1.77 million",
}
"""How many words of novels the biLM of each Hungarian tagger has read."""

BASELINE_NOVELS = "szeged"
"""The set whose training without ELMo counts for all of `NOVELS`: the treebank is the same."""

NOVELS_HEAD = """\
## How much raw text does it take?

The treebank is the same in all rows: UD Hungarian Szeged, 20,166 tokens. The raw text
is the first words of Hungarian novels. A biLM was pretrained on it, or static vectors
were trained on it (`elmo static`), which the tagger then has in place of ELMo. Scores
are for the test set, which consists of newspaper text.

`--recipe auto` took `little` for the biLMs, and `mini` for that of 1.77 million words.
Those of a million words and more were stopped after twenty minutes, when they had read
their text 2.6 times and 1.2 times instead of ten times. Those of 20 and 100 thousand
words were measured every hundred steps on the treebank's dev set, newspapers rather
than novels, and the step that was best there was kept: step 100 of 579, and step 800 of
2,007. Trained to the end, they might help the tagger more.

A biLM with a lower perplexity [made no better
tags](lab-notes.md#does-a-better-bilm-make-better-tags-of-hungarian) (one seed). Scores
with 1.77 million words hardly differ from those with 1 million. The biLM of 1.77
million words is larger, and read its text fewer times.

"""

LEVEL = 0.05
"""The level of the tests, all together, that say which differences are beyond chance."""

PICTURE = "images/little-text.svg"


def write_page(root: Path) -> str:
    """Return the whole page in Markdown."""
    runs, static = _read(root)
    if not runs:
        raise ElmoError(f"{root}: holds no record of a tagger; make some with benchmarks/experiments/little_text.py")
    names = [name for name in DATA if any(run.data == name for run in runs)]
    rows = [f"| text | | {' | '.join(SCORES)} | seeds | minutes a seed |", f"|---|---|{'---|' * len(SCORES)}---|---|"]
    for name in names:
        of_set = [run for run in runs if run.data == name]
        if name in PUBLISHED:
            model, scores = PUBLISHED[name]
            rows.append(f"| {DATA[name]} | {model} | {' | '.join(map(str, scores))} | | |")
        for run in of_set:
            first = DATA[name] if run is of_set[0] and name not in PUBLISHED else ""
            kind = "without ELMo" if run.kind == BASELINE else "with ELMo"
            if _epochs(run) != _epochs(of_set[0]):
                kind += f", {_epochs(run)} epochs"
            rows.append(f"| {first} | {kind} | {' | '.join(_row(run))} |")
    bilms = _bilms(root, [*names, *NOVELS])
    machines = "; ".join(sorted({result.machine for run in runs for result in run.results}))
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        summary=_summary(runs, static, names, bilms),
        machines=textwrap.fill(f"too ({machines}).", 88, break_on_hyphens=False, break_long_words=False),
        taggers="\n".join(rows),
        novels=_novels(runs, static),
        pretraining=_pretraining(bilms),
        commands=_commands([*runs, *static]),
    )


def _read(root: Path) -> tuple[list[Run], list[Run]]:
    """Return the taggers without ELMo and with it, and those with static vectors in its place."""
    runs = [run for run in read_records(root) if run.task == "tag"]
    return [run for run in runs if run.kind != STATIC], [run for run in runs if run.kind == STATIC]


def _commands(runs: Sequence[Run]) -> str:
    """Return each distinct command once, after the names of the sets if it was run for several."""
    sets: dict[str, list[str]] = {}
    for run in runs:
        sets.setdefault(run.command, []).append(f"`{run.data}`")
    heads = {command: f"{', '.join(names)}:\n\n" if len(names) > 1 else "" for command, names in sets.items()}
    return "\n\n".join(f"{head}```console\n{command}\n```" for command, head in heads.items())


def _summary(
    runs: Sequence[Run], static: Sequence[Run], names: Sequence[str], bilms: Sequence[tuple[str, dict[str, Any]]]
) -> str:
    """Return the answer to the page's question: what ELMo gains, how it compares, and how long it takes."""
    listed = [run for run in runs if run.data in names]
    plain = {run.data: run for run in listed if run.kind == BASELINE}
    with_elmo = {run.data: run for run in reversed(listed) if run.kind != BASELINE}  # the first one of each set
    pairs = {name: (plain[name], with_elmo[name]) for name in names if name in plain and name in with_elmo}
    items = [*_gains(pairs), *_leads(plain, with_elmo), *_times(runs, bilms), *_more_text(runs, static)]
    return "\n".join(textwrap.fill(item, 88, initial_indent="- ", subsequent_indent="  ") for item in items)


def _gains(pairs: Mapping[str, tuple[Run, Run]]) -> Iterator[str]:
    """Say what ELMo gains in each language, and which differences are beyond chance, given both taggers of each set."""
    gains_of = {
        name: [after - before for before, after in zip(*map(_shown_means, pair), strict=True)]
        for name, pair in pairs.items()
    }
    english = gains_of.pop(ENGLISH, None)
    gains = [gain for found in gains_of.values() for gain in found]
    if not gains:
        return
    languages = {name: DATA[name].partition(",")[0] for name in gains_of}
    by_language = ", ".join(f"{statistics.mean(found):+.1f} in {languages[name]}" for name, found in gains_of.items())
    better = [gain for gain in gains if gain > 0]
    span = f", by {min(better):.2f} to {max(better):.2f} points" if better else ""
    text = (
        f"With ELMo, {len(better)} of the {len(gains)} scores of {len(languages)} old languages are higher than "
        f"without it{span}. On average, the difference is {statistics.mean(gains):.2f} points: {by_language}."
    )
    if english is not None:
        text += f" In English, with more words and a larger biLM, it is {statistics.mean(english):+.1f} (one seed)."
    yield text
    of_seeds = {language: _gains_of_seeds(*pairs[name]) for name, language in languages.items()}
    if all(of_seeds.values()):
        yield _beyond_chance(of_seeds)


def _leads(plain: Mapping[str, Run], with_elmo: Mapping[str, Run]) -> Iterator[str]:
    """Say how the taggers compare with the published scores, on the sets for which there is one with ELMo."""
    leads, plain_leads = (
        [
            own - other
            for name, (_, published) in PUBLISHED.items()
            if name in with_elmo and name in taggers
            for own, other in zip(_shown_means(taggers[name]), published, strict=False)
        ]
        for taggers in (with_elmo, plain)
    )
    if leads:
        yield (
            f"LiBERTus is a transformer pretrained from scratch on such texts. {_share(leads)} of its scores are lower "
            f"than those of our tagger with ELMo (by {statistics.mean(leads):.1f} points on average), and "
            f"{_share(plain_leads).lower()} are lower than those without (by {statistics.mean(plain_leads):.1f})."
        )


def _times(runs: Sequence[Run], bilms: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Say how long a tagger with ELMo and its biLM take."""
    with_elmo = [run for run in runs if run.kind != BASELINE and run.data != ENGLISH]
    minutes = [result.seconds / 60 for run in with_elmo for result in run.results]
    if minutes:
        text = f"A tagger with ELMo on so little text takes {min(minutes):.0f} to {max(minutes):.0f} minutes."
        if more := sorted(facts["seconds"] / 60 for _, facts in bilms):
            text += f" Pretraining a biLM takes [{more[0]:.0f} to {more[-1]:.0f} minutes more](#pretraining)."
        yield text


def _more_text(runs: Sequence[Run], static: Sequence[Run]) -> Iterator[str]:
    """Say what more raw text gives, to a biLM and to static vectors."""
    novels = _of_novels(runs)
    if len(novels) < 2:
        return
    longest = [*novels][-1]
    text = (
        f"[More raw text](#how-much-raw-text-does-it-take) gives more: a biLM pretrained on {longest} words of "
        f"Hungarian novels changes the three scores by {_gained(novels[longest], novels['none'])} points."
    )
    if compared := [(run, words) for run in static if (words := NOVELS[run.data]) in novels]:
        run, words = compared[-1]
        text += (
            f" With static vectors trained on {words} words in place of ELMo, they change by "
            f"{_gained(run, novels['none'])} points, and with a biLM of the same words by "
            f"{_gained(novels[words], novels['none'])}. So it is not the text alone that helps."
        )
    yield (
        f"{text} A published Hungarian model with vectors of a web corpus has higher scores still; Hungarian stands in "
        "here for languages without such a model."
    )


def _gained(run: Run, baseline: Run) -> str:
    """Return how much each of `SCORES` changes, in words."""
    changes = (f"{more - less:+.1f}" for more, less in zip(_means(run), _means(baseline), strict=True))
    *first, last = ["0.0" if change[1:] == "0.0" else change for change in changes]
    return f"{', '.join(first)} and {last}"


def _gains_of_seeds(plain: Run, with_elmo: Run) -> dict[str, list[float]]:
    """Return what each seed gains in each of `SCORES`. The dictionary is empty unless both have the same seeds."""
    if [result.seed for result in plain.results] != [result.seed for result in with_elmo.results]:
        return {}
    before, after = _scores(plain), _scores(with_elmo)
    return {
        title: [more - less for less, more in zip(before[key], after[key], strict=True)]
        for title, key in SCORES.items()
        if all(len(scores.get(key, [])) > 1 for scores in (before, after))
    }


def holm(chances: Mapping[str, float]) -> set[str]:
    """Return which of several tests pass `LEVEL` together, given the p-value of each.

    Source: Holm 1979. The smallest must be below the level divided by the number of tests, the next one below the level
    divided by one less, and so on, up to the first that isn't.
    """
    passed: set[str] = set()
    for rank, what in enumerate(sorted(chances, key=lambda what: chances[what])):
        if chances[what] >= LEVEL / (len(chances) - rank):
            break
        passed.add(what)
    return passed


def _beyond_chance(of_seeds: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Say which differences are larger than chance alone would make them, by language."""
    differences = {f"{title} in {language}": gains for language, of in of_seeds.items() for title, gains in of.items()}
    passed = holm({what: float(ttest_rel(gains, [0.0] * len(gains)).pvalue) for what, gains in differences.items()})
    found = [
        f"{what} ({'+' if statistics.mean(gains) > 0 else ''}{mean_and_deviation(gains)})"
        for what, gains in differences.items()
        if what in passed
    ]
    tests = f"by paired t-tests over the seeds at {100 * LEVEL:.0f} % for all {len(differences)} together (Holm)"
    text = (
        f"Only {', '.join(found)} {'differ' if len(found) > 1 else 'differs'} by more than chance, {tests}."
        if found
        else f"No score differs by more than chance, {tests}."
    )
    number = min(map(len, differences.values()))
    limit = float(student.ppf(1 - LEVEL / len(differences) / 2, number - 1)) / number**0.5
    return (
        f"{text} With {number} seeds, even the clearest difference passes only if it is {limit:.0f} times its standard "
        "deviation, so the others are undecided rather than zero. Two sources of chance are not counted: pretraining, "
        "since all seeds of a row share one biLM, and the choice of the sentences that are scored."
    )


def _scores(run: Run) -> Mapping[str, list[float]]:
    """Return the scores of each seed on the test set, or on the dev set if there is no test set."""
    return run.all_scores("test") or run.all_scores("dev")


def _means(run: Run) -> list[float]:
    """Return the mean over seeds of each of `SCORES` that was measured."""
    scores = _scores(run)
    return [statistics.mean(scores[key]) for key in SCORES.values() if key in scores]


def _shown_means(run: Run) -> list[float]:
    """Return the means as the page's table has them."""
    return [round(mean, 2) for mean in _means(run)]


def _share(leads: Sequence[float]) -> str:
    """Return how many leads are above zero: "All 9", or "7 of the 9"."""
    number = sum(lead > 0 for lead in leads)
    return f"All {number}" if number == len(leads) else f"{number} of the {len(leads)}"


def _of_novels(runs: Sequence[Run]) -> dict[str, Run]:
    """Return the Hungarian taggers by the words that their biLMs have read, the one without a biLM first."""
    found = {(run.data, run.kind == BASELINE): run for run in runs}
    rows = {"none": (BASELINE_NOVELS, True)} | {words: (name, False) for name, words in NOVELS.items()}
    return {words: found[key] for words, key in rows.items() if key in found}


def _novels(runs: Sequence[Run], static: Sequence[Run]) -> str:
    """Return the section on the number of words of raw text, or nothing if there are no such records."""
    if not (found := _of_novels(runs)):
        return ""
    model, scores = PUBLISHED[BASELINE_NOVELS]
    columns = ["words of raw text", "used for", *SCORES, "seeds", "minutes a seed"]
    table = f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
    table += "".join(
        f"| {words} | {used} | {' | '.join(_row(run))} |\n"
        for words, bilm in found.items()
        for used, run in (
            *(("static vectors", run) for run in static if NOVELS[run.data] == words),
            ("a biLM" if bilm.kind != BASELINE else "", bilm),
        )
    )
    table += f"| {model} | | {' | '.join(map(str, scores))} | | |\n"
    alt = "Three curves that mostly rise with the number of words, and the published scores as horizontal lines"
    return f"{NOVELS_HEAD}{table}\n![{alt}]({PICTURE})\n\n"


def draw_novels(root: Path, path: Path) -> None:
    """Draw the scores over the words that the biLM has read, a panel for each target."""
    found = _of_novels(_read(root)[0])
    if not found:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    model, published = PUBLISHED[BASELINE_NOVELS]
    figure = new_figure()
    figure.set_size_inches(11, 3.5)
    for place, ((title, key), level) in enumerate(zip(SCORES.items(), published, strict=True), 1):
        axes = figure.add_subplot(1, len(SCORES), place)
        with_elmo = {_short(words): statistics.mean(run.all_scores("test")[key]) for words, run in found.items()}
        rows = [Series("this tagger", with_elmo), Series(model, dict.fromkeys(with_elmo, level), is_published=True)]
        draw_curves(axes, list(with_elmo), rows, "% of words")
        axes.set_title(title)
        axes.set_xlabel("words for the biLM")
        if place < len(SCORES):
            axes.get_legend().remove()
    write_all({path: lambda part: save_figure(figure, part, "svg")})
    print(f"{path}: drawn")


def _short(words: str) -> str:
    """Return a number of words as on an axis, where the whole names would run into each other."""
    return words.replace(" thousand", "k").replace(" million", "M")


def _epochs(run: Run) -> int:
    return run.recipe["training"]["max_epochs"]


def _row(run: Run) -> Sequence[str]:
    scores = _scores(run)
    return [
        *(mean_and_deviation(scores[key]) if key in scores else "" for key in SCORES.values()),
        str(len(run.results)),
        run.minutes(),
    ]


def _bilms(root: Path, names: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the facts about the pretraining of the biLMs, with the names of their sets."""
    return [
        (name, cast("dict[str, Any]", read_json(path)))
        for name in names
        for path in sorted((root / name / "bilm").glob("*.json"))
    ]


def _pretraining(bilms: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Return a section on the pretraining of the biLMs, or nothing if there are none."""
    if not bilms:
        return ""
    rows = [
        f"| `{name}` | {facts['step']:,} of {facts['total_steps']:,} | {facts['best_step'] or facts['step']:,} | "
        f"{facts['seconds'] / 60:.1f} | "
        f"{facts['peak_mb']:,} | {facts['heldout_perplexity']:,.1f} | {facts['machine']} | `{facts['command']}` |\n"
        for name, facts in bilms
    ]
    columns = ["set", "steps", "step that was kept", "minutes", "MB", "held-out perplexity", "machine", "command"]
    head = f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
    note = "Each set has a vocabulary of its own, so the perplexities of two rows can't be compared.\n\n"
    return f"## Pretraining\n\n{note}{head}{''.join(rows)}\n"


@script
def main() -> None:
    """Read the records, write the page and draw its picture."""
    page, records = write_page_of_records(__doc__, "docs/little-text.md", write_page)
    draw_novels(records, page.parent / PICTURE)


if __name__ == "__main__":
    main()
