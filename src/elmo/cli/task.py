"""`elmo task`: train, evaluate and use models for tasks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.shared import STOPPED, device_option, encoding_option, examples, json_option, print_result, set_option
from elmo.cli.table import print_table
from elmo.errors import ElmoError
from elmo.progress import show_progress
from elmo.wording import counted

if TYPE_CHECKING:
    from elmo.tasks.experiment import Experiment
    from elmo.tasks.task import Task


@click.group(
    epilog=examples(
        "elmo task train ner --train train.conll --dev dev.conll --test test.conll --elmo en --out entities/",
        "elmo task train ner --train train.conll --dev dev.conll --elmo none --out baseline/ --seeds 5",
        "elmo task evaluate entities/ test.conll",
        "echo 'They met in Espoo .' | elmo task predict entities/ -",
    )
)
def command() -> None:
    """Train, evaluate and use models for tasks, with ELMo or without.

    \b
    ner       named entities
    sst       sentiment
    snli      entailment
    srl       semantic roles
    coref     coreference
    squad     answers to questions
    tag       parts of speech, features, lemmas or other columns
    classify  labels of texts
    """  # noqa: D301 - click doesn't wrap what follows a backspace


@command.command(
    short_help="Train a model for a task.",
    epilog=examples(
        "elmo task train ner --train train.conll --dev dev.conll --test test.conll --elmo en --out entities/",
        "elmo task train ner --train train.conll --dev dev.conll --elmo none --out none/ --set words.vectors=glove.txt",
        "elmo task train ner --recipe my.yaml --train t.conll --dev d.conll --elmo model/ --out five/ --seeds 5",
        "elmo task train squad --train 'a.json#:40,b.json' --dev 'a.json#40:' --elmo model/ --out answers/",
        "elmo task train squad --train t.json --dev d.json --elmo model/ --finetune tuned/ --out answers/",
    ),
)
@click.argument("task")
@click.option("--recipe", metavar="FILE", help="A YAML file. Default: the package's recipe of the task.")
@click.option(
    "--train",
    required=True,
    type=click.Path(),
    metavar="FILE",
    help="Training set, in the task's format. For squad, a.json#:40,b.json is the first 40 articles of a.json, and "
    "b.json.",
)
@click.option(
    "--dev",
    required=True,
    type=click.Path(),
    metavar="FILE",
    help="Dev set, which decides when to stop and which epoch is best.",
)
@click.option(
    "--test", type=click.Path(), metavar="FILE", help="Test set, on which the best model is scored at the end."
)
@click.option(
    "--elmo", required=True, metavar="MODEL", help="Any model that elmo info can read, or none for a baseline."
)
@click.option(
    "--finetune",
    "tuned",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="First fine-tune MODEL on the training text, write the result to FOLDER, and use it instead of MODEL.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="RUN", help="The run folder.")
@set_option("Change one key of the recipe. May be repeated.")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of runs, each with its own seed.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep ELMo's vectors in this folder, where other runs can use them too.",
)
@click.option("--no-bilm", is_flag=True, help="Keep no copy of MODEL in RUN. MODEL then has to stay where it is.")
@click.option("--tensorboard", is_flag=True, help="Also write logs for TensorBoard.")
@device_option
@json_option
def train(
    task: str,
    recipe: str | None,
    overrides: tuple[str, ...],
    seeds: int,
    no_bilm: bool,
    tuned: Path | None,
    out: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a model for TASK and keep the best one in the folder RUN.

    The model is scored on the dev set after each epoch. Ctrl-C saves a checkpoint and stops with exit code 75;
    the same command, started again, continues at the exact step. RUN holds everything that the model needs. A copy of
    MODEL is part of that, unless --no-bilm leaves it out.

    With --finetune, MODEL is first trained for one epoch on the sentences of the training set (for squad, on its
    paragraphs), and its perplexity on those of the dev set is measured before and after. A MODEL without a
    softmax gets a new one. If FOLDER already holds this MODEL, fine-tuned on this text, it is used as it is.
    """
    from elmo.pretrain.finetuning import FineTuningStoppedError
    from elmo.tasks import load_task_recipe
    from elmo.tasks.experiment import NO_ELMO, Experiment, ExperimentConfig
    from elmo.tasks.finetune import finetune_for_task
    from elmo.training.recipes import parse_override

    loaded = load_task_recipe(task, recipe, dict(map(parse_override, overrides)))
    if no_bilm and options["elmo"] == NO_ELMO:
        raise ElmoError("--no-bilm: has no effect without ELMo; leave it out")
    experiment = Experiment(ExperimentConfig(task, loaded, out, with_bilm=not no_bilm, num_seeds=seeds, **options))
    for note in experiment.notes:
        click.echo(f"elmo: {note}", err=True)
    if tuned is not None:
        try:
            result = finetune_for_task(experiment, tuned)
        except FineTuningStoppedError:
            figures = {"run": str(out), "done": False, "runs": []}
            print_result(f"{tuned}: fine-tuning stopped; run the same command again to continue", figures, as_json)
            sys.exit(STOPPED)
        if result is not None:
            click.echo(f"elmo: {tuned}: {result.describe()}, on the dev set", err=True)
        experiment = experiment.with_elmo(tuned)
    experiment.run()
    _report(experiment, as_json)


def _report(experiment: Experiment, as_json: bool) -> None:
    from elmo.tasks.results import describe_scores

    out, results = experiment.config.folder, experiment.results
    scores = describe_scores(results, experiment.task.metric)
    if not experiment.is_done:
        num_seeds = experiment.config.num_seeds
        sentence = (
            f"{out}: stopped, {len(results)} of {num_seeds} runs are done; run the same command again to continue"
        )
    elif len(results) == 1:
        result = results[0]
        epochs = f"epoch {result.best_epoch} of {result.epochs}"
        sentence = f"{out}: {scores}, {epochs}, {result.seconds / 60:.1f} minutes"
    else:
        sentence = f"{out}: {scores}, of {len(results)} seeds"
    print_result(
        sentence,
        {"run": str(out), "done": experiment.is_done, "runs": [result.as_json() for result in results]},
        as_json,
    )
    if not experiment.is_done:
        sys.exit(STOPPED)


@command.command(
    short_help="Score a trained model on a file.",
    epilog=examples(
        "elmo task evaluate entities/ test.conll",
        "elmo task evaluate entities/ wikineural.conll --set token_column=1 --json",
        "elmo task evaluate five/seed-* dev.json --ensemble --predictions answers.json",
    ),
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.argument("file", type=click.Path())
@click.option(
    "--ensemble", is_flag=True, help="Combine the predictions of the models of all RUNs (snli, squad, classify)."
)
@click.option(
    "--predictions", type=click.Path(path_type=Path), metavar="OUTPUT", help="Also write the predictions to this file."
)
@set_option(
    "Change how FILE is read, as in token_column=1. A smaller training.batch_size=N saves memory, but changes the "
    "scores of recipes with elmo.layer_norm slightly."
)
@device_option
@json_option
def evaluate(
    runs: tuple[Path, ...],
    file: str,
    ensemble: bool,
    predictions: Path | None,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """Score the model in the folder RUN on FILE, which is in the task's format.

    With --ensemble, the models of several RUNs predict together.
    """
    import time

    from elmo.formats.files import write_all, write_text
    from elmo.nn.devices import use_device
    from elmo.targets import require_new_file
    from elmo.tasks import load
    from elmo.tasks.ensemble import load_ensemble, predict_together
    from elmo.tasks.prediction import predict as predict_all
    from elmo.training.recipes import override

    if predictions is not None:
        require_new_file(predictions)
    first, *others = runs
    if others and not ensemble:
        raise ElmoError(f"{len(runs)} run folders were given: add --ensemble to combine them, or name only one")
    members = load_ensemble(runs, use_device(device)) if ensemble else [load(first, device=device)]
    trained = members[0]
    # Only what decides how the file is read may be changed: another setting would ask for another model.
    settings = _settings(trained.task, overrides, ["training.batch_size"])
    recipe = override(trained.recipe, settings)
    found = trained.task.read(file, recipe)
    if note := trained.task.note_on_gold(found, recipe):  # a part of a test set may have nothing to score
        click.echo(f"elmo: {file}: {note}", err=True)
    if predictions is not None and (note := trained.task.note_on_file(found)):
        raise ElmoError(f"{file}: {note}; leave out --predictions")
    # The rate is that of predicting; reading and loading are not in it.
    started = time.perf_counter()
    with show_progress("predicting", "examples", len(members) * len(found)) as bar:
        if ensemble:  # each member in batches of its own size, unless the user chose one
            size = recipe.training.batch_size if "training.batch_size" in settings else None
            predicted = predict_together(members, found, size, bar.update)
        else:
            predicted = predict_all(trained.task, trained.model, found, recipe.training.batch_size, bar.update)
    rate = len(found) / (time.perf_counter() - started)
    scores = trained.task.score(found, predicted)
    if not as_json:
        print_table((), [(name, f"{value:.2f}") for name, value in scores.items() if name != trained.task.metric])
    metric = trained.task.metric
    print_result(
        f"{metric} {scores[metric]:.2f} on {counted(len(found), 'example')}, {rate:,.0f} a second",
        {"metric": metric, "scores": scores, "num_examples": len(found), "examples_per_second": rate},
        as_json,
    )
    # After the scores: they took long, and are not lost if the file can't be written.
    if predictions is not None:
        text = trained.task.as_file(found, predicted)
        write_all({predictions: lambda path: write_text(path, text)})


@command.command(
    short_help="Print the sentences of a task's files.",
    epilog=examples(
        "elmo task text ner train.conll > task.txt && elmo finetune model/ tuned/ task.txt",
        "elmo task text ner train.conll --set token_column=1",
        "elmo task text snli train.jsonl.xz dev.jsonl.xz > task.txt",
    ),
)
@click.argument("task")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
@click.option("--recipe", metavar="FILE", help="A YAML file. Default: the package's recipe of the task.")
@set_option("Change how FILE is read, as in token_column=1.")
def text(task: str, files: tuple[str, ...], recipe: str | None, overrides: tuple[str, ...]) -> None:
    """Print the sentences of a task's FILEs, each once, to pretrain or fine-tune a biLM on them.

    Each line is a sentence, with a space between tokens.
    """
    from elmo.tasks import get_task, load_task_recipe
    from elmo.tasks.elmo.cache import distinct

    found = get_task(task)
    loaded = load_task_recipe(task, recipe, _settings(found, overrides, found.reading_text))
    read = (example for file in files for example in found.read(file, loaded))
    for sentence in distinct(found.all_sentences(read), lowercase=False):
        click.echo(" ".join(sentence))


@command.command(
    short_help="Predict from text with a trained model.",
    epilog=examples(
        "elmo task predict entities/ text.txt > tagged.conll",
        'echo "They\'ve met in Espoo." | elmo task predict entities/ - --tokenizer ptb --json',
        "elmo task predict tagger/ treebank.conllu.xz > tagged.conllu",
        "elmo task predict tagger/ novel.txt --text paragraphs > tagged.conllu",
        'printf "A dog runs.\\tAn animal moves.\\n" | elmo task predict snli-run/ -',
        'printf "They met in Espoo.\\tWhere did they meet?\\n" | elmo task predict squad-run/ -',
    ),
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(), metavar="FILE|-")
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="whitespace (for tokenized text), ptb (for raw English), or any other of elmo embed. Default: the one that "
    "fits the training set of RUN. If that set was tokenized: that of the biLM's training text, unless FILE looks "
    "tokenized already, with spaces around its punctuation marks.",
)
@click.option(
    "--text",
    "layout",
    metavar="FORMAT",
    help="plain, as above. For ner, sst, srl and tag also paragraphs (one a line) or wrapped (paragraphs of several "
    "lines, which end at a blank line); these are split into sentences. For tag, ner and classify also conllu. For tag "
    "also columns, as in the training set of RUN. Default: conllu for a FILE so named (x.conllu, x.conllu.xz), and "
    "plain for others.",
)
@click.option(
    "--language",
    metavar="CODE",
    help="Language of the text, such as de, by whose rules paragraphs are split into sentences. Default: that of the "
    "tokenizer, such as spacy:de, or of the biLM's training text.",
)
@encoding_option
@device_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on each line, for use by programs.")
def predict(
    run: Path,
    file: str,
    tokenizer: str | None,
    layout: str | None,
    language: str | None,
    encoding: str,
    device: str,
    as_json: bool,
) -> None:
    """Print the predictions of the model in the folder RUN for each line of a text. Blank lines are skipped.

    \b
    task      a line holds
    ner, sst  a sentence
    srl       a sentence, or JSON with tokens and predicates (counted from 0)
    snli      premise, tab, hypothesis, or JSON with sentence1 and sentence2
    squad     paragraph, tab, question, or JSON with context and question
    classify  a text, or JSON with text, tokens or sentences
    coref     a sentence; blank lines separate documents
    tag       a sentence

    Without predicates, srl finds them by the forms of the words. For tag, the result is CoNLL-U, or columns with
    --text columns. If FILE is CoNLL-U or has columns, the model's tags replace those in it, and everything else stays
    as it is; ner writes its tags to MISC, as in NER=B-PER. For classify, "# newdoc" begins a text of CoNLL-U; in a file
    without it, each comment with labels does, as in the training set of RUN.
    """  # noqa: D301 - see above
    import json

    from elmo.cli.unanswered import CHUNK, CHUNK_TOKENS, layout_of, read_unanswered
    from elmo.tasks import load
    from elmo.text.chunks import in_chunks
    from elmo.text.decoding import shown_name
    from elmo.text.reading import expand

    # A bad file is refused before the model is loaded.
    path, *others = expand([file])
    if others:
        raise ElmoError(f"{file}: matches {len(others) + 1} files; name only one")
    trained = load(run, device=device)
    found = read_unanswered(trained, path, layout or layout_of(trained.task, path), encoding, tokenizer, language)
    num_examples = 0
    # Examples are read, predicted and printed chunk by chunk, so that a pipe of any length needs no more memory.
    for chunk in in_chunks(found, trained.task.length, CHUNK, CHUNK_TOKENS):
        num_examples += len(chunk)
        for example, prediction in zip(chunk, trained.predict(chunk), strict=True):
            if as_json:
                click.echo(json.dumps(trained.task.as_json(example, prediction), ensure_ascii=False))
            else:
                click.echo(trained.task.as_text(example, prediction), nl=False)
    if not num_examples:
        raise ElmoError(f"{shown_name(path)}: holds no text")


def _settings(task: Task[Any, Any, Any], overrides: Sequence[str], others: Sequence[str]) -> dict[str, object]:
    """Parse overrides of the keys that decide how a file is read, or of `others`.

    Raises:
        ElmoError: If an override names another key, which would have no effect.
    """
    from elmo.training.recipes import parse_override

    values = dict(map(parse_override, overrides))
    # An override without effect is refused: it would be believed to have one, and the scores would be misread.
    known = (*task.reading, *others)
    if strange := next((key for key in values if key not in known), None):
        raise ElmoError(
            f"--set {strange}: has no effect here; keys that do for {task.name}: {', '.join(known) or 'none'}"
        )
    return values
