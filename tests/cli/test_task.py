"""`elmo task` trains, evaluates and predicts from the shell."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from click.testing import CliRunner

import elmo.tasks
from bridge import make_model
from commands import RunMain, run, set_options
from elmo import formats
from elmo.cli import task as task_command
from elmo.cli.main import cli
from elmo.cli.unanswered import PLAIN, layout_of
from elmo.errors import ElmoError
from elmo.formats import files as writing
from elmo.formats import save_native
from elmo.pretrain.loop import Pretrainer
from elmo.tasks import TASKS, get_task
from elmo.tasks.task import Task
from elmo.tasks.trainer import Trainer
from elmo.text.corpus import Corpus
from elmo.text.tokenizers import Tokenizer
from pages import ROOT
from recipes import SENTENCES, write_names
from running import has_rows, rows_without_times, started, wait_until

TEXTS = SENTENCES[:7]
SMALL = """\
scheme: BIO
words: {dim: 6, min_count: 1}
characters: {dim: 4, filters: 6, width: 3}
lstm: [8]
dropout: 0.1
elmo: {at: input, dropout: 0.1, penalty: 0.1}
training: {batch_size: 4, learning_rate: 0.03, max_epochs: 25, patience: 25}
"""


def write_inputs(folder: Path) -> None:
    write_names(folder / "text.conll", TEXTS)
    (folder / "small.yaml").write_text(SMALL)
    save_native(make_model(), folder / "model")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a text to train on, a recipe and a biLM the current one."""
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = ["task", "train", "ner", "--recipe", "small.yaml", "--train", "text.conll", "--dev", "text.conll"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Train once, and return the run folder and what the training printed."""
    folder = tmp_path_factory.mktemp("finished")
    write_inputs(folder)
    with chdir(folder):
        printed = run(*TRAIN, "--elmo", "model", "--out", "run", "--test", "text.conll", "--device", "cpu")
    return folder / "run", printed


@pytest.fixture
def trained(folder: Path, finished: tuple[Path, str]) -> str:
    """Copy the finished run to `run`, and return what its training printed."""
    run_folder, printed = finished
    shutil.copytree(run_folder, "run")
    return printed


def test_train_evaluate_and_predict(trained: str) -> None:
    """The model learns seven sentences by heart."""
    assert trained.startswith("run: dev f1 100.00, test f1 100.00, epoch ")
    seconds = json.loads(Path("run/results.json").read_text())["seconds"]
    assert trained.endswith(f", {seconds / 60:.1f} minutes\n")
    lines = run("task", "evaluate", "run", "text.conll", "--device", "cpu").splitlines()
    assert lines[:4] == ["precision  100.00", "recall     100.00", "f1/LOC     100.00", "f1/PER     100.00"]
    assert lines[4].startswith("f1 100.00 on 7 examples, ")
    figures = json.loads(run("task", "evaluate", "run", "text.conll", "--json"))
    assert (figures["scores"][figures["metric"]], figures["num_examples"]) == (100, 7)
    assert "f1 100.00" in run("task", "evaluate", "run", "text.conll", "--set", "training.batch_size=1")
    with pytest.raises(
        ElmoError, match=r"elmo\.state: has no effect here; keys that do for ner: token_column, misc_key, training"
    ):
        run("task", "evaluate", "run", "text.conll", "--set", "elmo.state=warm")
    Path("text.txt").write_text("w0 in Espoo w4\n\nAnn w1 w2\n")
    conll = "w0\tO\nin\tO\nEspoo\tB-LOC\nw4\tO\n\nAnn\tB-PER\nw1\tO\nw2\tO\n\n"
    assert run("task", "predict", "run", "text.txt") == conll


def test_evaluate_shows_progress(trained: str, monkeypatch: pytest.MonkeyPatch) -> None:
    show = MagicMock()
    monkeypatch.setattr(task_command, "show_progress", show)
    run("task", "evaluate", "run", "text.conll", "--device", "cpu")
    show.assert_called_once_with("predicting", "examples", 7)
    update = show.return_value.__enter__.return_value.update
    assert [call.args for call in update.call_args_list] == [(4,), (3,)]


def test_options_decide_how_text_is_read(trained: str) -> None:
    """A recipe names the columns of a task's file, and --encoding the encoding of plain text."""
    lines = Path("text.conll").read_text().splitlines()
    Path("numbered.conll").write_text("".join(f"7\t{line}\n" if line else "\n" for line in lines))
    text = run("task", "text", "ner", "numbered.conll", "--set", "token_column=1")
    assert text.splitlines() == TEXTS
    Path("latin.txt").write_bytes("Fußball\n".encode("latin-1"))
    assert run("task", "predict", "run", "latin.txt", "--encoding", "latin-1").startswith("Fußball\t")


def test_all_keys_on_which_text_depends_can_be_set(folder: Path) -> None:
    """Some of them belong to a trained model, and are refused when it is evaluated: `test_labels_belong_to_a_model`."""
    Path("topics.tsv").write_text("a|b\tRain again today .\n|\tSun .\n")
    with pytest.raises(ElmoError, match=r"line 1: the text has 2 labels \(a, b\); .* \(labels=several\)"):
        run("task", "text", "classify", "topics.tsv")
    assert run("task", "text", "classify", "topics.tsv", "--set", "labels=several") == "Rain again today .\nSun .\n"
    short = run("task", "text", "classify", "topics.tsv", "--set", "labels=several", "--set", "max_tokens=2")
    assert short == "Rain again\nSun .\n"
    Path("trees.txt").write_text("(3 (2 ``) (3 Fun))\n(2 (2 A) (2 film))\n")
    assert run("task", "text", "sst", "trees.txt") == '" Fun\nA film\n'
    assert run("task", "text", "sst", "trees.txt", "--set", "quotes=penn", "--set", "binary=true") == "`` Fun\n"


def test_labels_belong_to_a_model(folder: Path) -> None:
    Path("topics.tsv").write_text("a\tRain .\nb\tSun .\n")
    train = ["task", "train", "classify", "--train", "topics.tsv", "--dev", "topics.tsv", "--elmo", "none"]
    run(*train, "--out", "topics", "--set", "training.max_epochs=1", "--set", "words.dim=4", "--set", "lstm=[4]")
    with pytest.raises(ElmoError, match=r"labels: has no effect here; .* tokenizer, label_comment, training.batch"):
        run("task", "evaluate", "topics", "topics.tsv", "--set", "labels=several")


def test_predicts_raw_text_from_a_pipe_as_json(trained: str) -> None:
    lines = run("task", "predict", "run", "-", "--tokenizer", "ptb", "--json", text="w0 in Espoo, w4.\n").splitlines()
    found = [json.loads(line) for line in lines]
    assert [entry["tokens"] for entry in found] == [["w0", "in", "Espoo", ",", "w4", "."]]
    assert {"start": 2, "end": 3, "type": "LOC", "text": "Espoo"} in found[0]["entities"]


def test_paragraphs_are_split_into_sentences(trained: str) -> None:
    """Their sentences have the predictions that they have on lines of their own."""
    Path("sentences.txt").write_text("Mr. Bo met Ann.\nGhent w5!\nw3 w1 Bo.\n")
    Path("paragraphs.txt").write_text("Mr. Bo met Ann. Ghent w5!\n\nw3 w1 Bo.\n")
    Path("wrapped.txt").write_text("Mr. Bo met\nAnn. Ghent\nw5!\n\nw3 w1 Bo.\n")
    wanted = run("task", "predict", "run", "sentences.txt", "--tokenizer", "ptb")
    assert wanted.count("\n\n") == 3
    for text in ("paragraphs", "wrapped"):
        assert run("task", "predict", "run", f"{text}.txt", "--tokenizer", "ptb", "--text", text) == wanted
        piped = Path(f"{text}.txt").read_text()
        assert run("task", "predict", "run", "-", "--tokenizer", "ptb", "--text", text, text=piped) == wanted


def test_paragraphs_are_split_by_the_rules_of_their_language(
    trained: str, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """If there are no rules for the language, ours are used, and a note says so."""
    monkeypatch.setattr("elmo.text.choice.is_split_by_language", lambda _: False)
    Path("text.txt").write_text("Ann met Bo . Espoo w4 .\n")
    command = ["task", "predict", "run", "text.txt", "--text", "paragraphs"]
    assert run_main(command)[2] == ""
    code, out, error = run_main([*command, "--language", "eu"])
    assert (code, out.count("\n\n")) == (0, 2)
    assert error.startswith("elmo: text.txt: sentences of language eu are split by our rules, which know the abbrev")
    for options, says in (
        (["--language", "Basque"], "language Basque: is not the code of a language"),
        (["--text", "plain", "--language", "eu"], "--language eu: text.txt is read as plain, which is not split"),
    ):
        code, out, error = run_main([*command, *options])
        assert (code, out) == (2, "")
        assert error.startswith(f"elmo: {says}")


def test_errors_in_wrapped_text_have_the_number_of_the_line(
    trained: str, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    task = get_task("ner")
    parse = task.parse

    def refuse(line: str, tokenize: Tokenizer) -> object:
        if "Bo" in line:
            raise ElmoError("refused")
        return parse(line, tokenize)

    monkeypatch.setattr(task, "parse", refuse)
    Path("text.txt").write_text("Ann\nmet.\n\nW0 w1. W2 w4\nw3. Bo w5\nw6.\n")
    command = ["task", "predict", "run", "text.txt", "--text", "wrapped", "--tokenizer", "ptb"]
    code, _, error = run_main(command)
    assert (code, error) == (2, "elmo: text.txt, line 5: refused\n")


def test_text_that_is_laid_out_in_another_way_is_noted(trained: str, run_main: RunMain) -> None:
    Path("text.txt").write_text("Ann met Bo . They left Ghent . It rained .\n" * 20)
    command = ["task", "predict", "run", "text.txt"]
    code, _, error = run_main(command)
    assert code == 0
    assert error == (
        "elmo: text.txt: most lines hold several sentences, and each line is read as one; pass --text paragraphs\n"
    )
    assert run_main([*command, "--text", "paragraphs"])[2] == ""
    Path("text.txt").write_text("1\tAnn\t_\t_\t_\t_\t_\t_\t_\t_\n")
    assert run_main(command)[2].endswith("looks like CoNLL-U, and is read as plain text; pass --text conllu\n")


def test_a_sentence_without_tokens_is_left_out(trained: str) -> None:
    """It looks blank, and CoNLL-U has no sentence without a word."""
    found = run("task", "predict", "run", "-", "--tokenizer", "words", text="\u200b\nw0 in Espoo w4\n")
    assert found == run("task", "predict", "run", "-", text="w0 in Espoo w4\n")


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_text_without_a_sentence_has_no_predictions(trained: str, text: str, run_main: RunMain) -> None:
    Path("blank.txt").write_text(text)
    assert run_main(["task", "predict", "run", "blank.txt"]) == (2, "", "elmo: blank.txt: holds no text\n")


def test_evaluate_can_read_files_with_other_columns(trained: str) -> None:
    lines = Path("text.conll").read_text().splitlines()
    Path("numbered.conll").write_text("\n".join(line and f"{number}\t{line}" for number, line in enumerate(lines)))
    with pytest.raises(ElmoError, match=r"numbered\.conll: all tokens in column 0 are numbers; .*=1\)"):
        run("task", "evaluate", "run", "numbered.conll", "--json")
    right = json.loads(run("task", "evaluate", "run", "numbered.conll", "--json", "--set", "token_column=1"))
    assert right["scores"]["f1"] == 100


def test_a_file_without_right_answers_gets_a_note(trained: str, run_main: RunMain) -> None:
    lines = Path("text.conll").read_text().split("\n")
    Path("none.conll").write_text("\n".join(f"{line.split()[0]} O" if line else "" for line in lines))
    code, _, error = run_main(["task", "evaluate", "run", "none.conll"])
    assert (code, error) == (0, "elmo: none.conll: has no entity in it; is its last column the tag?\n")
    assert run_main(["task", "evaluate", "run", "text.conll"])[2] == ""


def test_scores_are_printed_even_if_predictions_cannot_be_written(
    trained: str, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    def fail(files: object) -> None:
        raise OSError(28, "No space left on device", "out.conll")

    monkeypatch.setattr(writing, "write_all", fail)
    code, out, error = run_main(["task", "evaluate", "run", "text.conll", "--predictions", "out.conll"])
    assert code == 2
    assert "f1 100.00 on 7 examples" in out
    assert error.startswith("elmo: out.conll: can't be written")


def test_info_describes_a_run_folder(trained: str) -> None:
    """`elmo info` prints the card and then one line, or all results as JSON. It says if training is not finished."""
    out = run("info", "run")
    assert out.startswith("# A model for the task ner\n")
    last = out.splitlines()[-1]
    assert last == "run: a model for the task ner, with ELMo (bilm), seeds 0; dev f1 100.00, test f1 100.00."
    facts = json.loads(run("info", "run", "--json"))
    assert (facts["task"], facts["metric"], facts["done"], facts["runs"][0]["seed"]) == ("ner", "f1", True, 0)
    assert facts["runs"][0]["machine"].endswith((" thread", " threads"))
    assert facts["recipe"]["scheme"] == "BIO"
    for name in ("results.json", "README.md"):
        (Path("run") / name).unlink()
    unfinished = "not finished; run the same elmo task train again to continue"
    assert run("info", "run") == f"run: a model for the task ner, with ELMo (bilm); {unfinished}.\n"


def test_fine_tuning_on_the_text_of_a_task(folder: Path) -> None:
    """`elmo task text` prints each sentence once, as tokens, and the task can use the model that was tuned on them."""
    text = run("task", "text", "ner", "text.conll", "text.conll")
    assert text.splitlines() == TEXTS
    Path("task.txt").write_text(text)
    run("finetune", "model", "tuned", "task.txt", "--new-softmax", "--min-count", "1", "--device", "cpu")
    assert "Ghent" in Path("tuned/vocabulary.txt").read_text().split(), "it occurs once"
    out = run(*TRAIN, "--elmo", "tuned", "--out", "run", "--set", "training.max_epochs=1", "--device", "cpu")
    assert out.startswith("run: dev f1 ")


TUNE = [*TRAIN, "--elmo", "model", "--finetune", "tuned", "--device", "cpu", "--set", "training.max_epochs=1"]


def test_fine_tuning_and_training_are_one_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """A model without a softmax gets one. The result goes to stdout and the perplexity to stderr. Another run uses the
    tuned model, and a run folder does not need it afterwards."""
    code, out, error = run_main([*TUNE, "--out", "run", "--json"])
    assert code == 0, error
    assert json.loads(out)["done"]
    assert re.search(r"^elmo: tuned: perplexity [\d.,]+ before, [\d.,]+ after, on the dev set$", error, re.M)
    sentences = Corpus.open("tuned/corpus")
    assert sentences.num_sentences == len(TEXTS)
    used, tuned, original = (
        formats.load(name).bilm.char_encoder.embedding.weight for name in ("run/bilm", "tuned", "model")
    )
    assert torch.equal(used, tuned)
    assert not torch.equal(tuned, original)
    monkeypatch.setattr(Pretrainer, "__init__", None)
    assert run(*TUNE, "--out", "run") == run(*TUNE, "--out", "run")
    run(*TUNE, "--out", "other", "--seeds", "2")
    shutil.rmtree("tuned")
    assert run("task", "evaluate", "run", "text.conll", "--device", "cpu").startswith("precision")


def test_interrupted_training_exits_with_75(folder: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> None:
    """Otherwise a shell's `&&`, or a cluster, would take it for finished."""
    make_step = Trainer.step

    def interrupt(trainer: Trainer[Any, Any], examples: Sequence[Any]) -> None:
        signal.raise_signal(signal.SIGTERM)
        make_step(trainer, examples)

    command = [*TRAIN, "--elmo", "none", "--out", "run", "--set", "training.max_epochs=1", "--device", "cpu"]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupt)
        code, out, _ = run_main(command)
    assert (code, out) == (75, "run: stopped, 0 of 1 runs are done; run the same command again to continue\n")
    code, out, _ = run_main(command)
    assert code == 0
    assert out.startswith("run: dev f1 ")


def test_interrupted_fine_tuning_continues(folder: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> None:
    """The same command continues where it stopped, and ends like one that was never stopped."""
    save_native(make_model(softmax=True), folder / "model")
    Path("text.conll").write_text("\n".join(f"w{n % 14}\tO\nw{n}\tO\nAnn\tB-PER\n" for n in range(40)))
    run(*TUNE, "--out", "whole")
    Path("tuned").rename("never-stopped")
    train_on = Pretrainer.train_on

    def interrupt(tuning: Pretrainer, *batch: Any) -> list[float]:
        if tuning.progress.step == 2:
            signal.raise_signal(signal.SIGINT)
        return train_on(tuning, *batch)

    monkeypatch.setattr(Pretrainer, "train_on", interrupt)
    code, out, _ = run_main([*TUNE, "--out", "run"])
    assert (code, out) == (75, "tuned: fine-tuning stopped; run the same command again to continue\n")
    assert not Path("tuned/config.json").exists()
    assert not Path("run").exists()
    monkeypatch.setattr(Pretrainer, "train_on", train_on)
    assert run(*TUNE, "--out", "run").startswith("run: dev f1 ")
    found, wanted = (formats.load(name).bilm.state_dict() for name in ("tuned", "never-stopped"))
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in found.items())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["--elmo", "none"], "--finetune: without ELMo there is nothing to fine-tune; name a model"),
        (["--out", "tuned"], "tuned: is inside the run folder; name another folder"),
        (["--finetune", "run/tuned"], "run/tuned: is inside the run folder; name another folder"),
        (
            ["--finetune", "model"],
            "model: holds README.md, which does not belong to a fine-tuning; name a new folder",
        ),
    ],
)
def test_bad_fine_tuning_is_refused(folder: Path, changes: list[str], says: str, run_main: RunMain) -> None:
    before = sorted(folder.rglob("*"))
    code, out, error = run_main([*TUNE, "--out", "run", *changes])
    assert (code, out) == (2, "")
    assert error.startswith(f"elmo: {says}")
    assert sorted(folder.rglob("*")) == before


def test_without_elmo_there_is_no_bilm_to_leave_out(folder: Path, run_main: RunMain) -> None:
    arguments = [*TRAIN, "--elmo", "none", "--no-bilm", "--out", "run"]
    code, _, error = run_main(arguments)
    assert (code, error) == (2, "elmo: --no-bilm: has no effect without ELMo; leave it out\n")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([], "run: is neither empty nor a run folder of a task; choose another one"),
        (["--seeds", "2"], "run: is neither empty nor a run of several seeds; choose another one"),
        (["--out", "warm", "--set", "elmo.state=warm"], "elmo.state: warm needs a warm state, and fine-tuning makes"),
        (["--out", "begun"], "begun: was started with no biLM, and now has one; choose another run folder"),
        (["--out", "begun", "--set", "dropout=0.3"], "begun: was started with no biLM, and now has one; choose"),
        (["--out", "untuned"], "untuned: was started with another biLM; choose another run folder"),
        (["--out", "tuned-run", "--set", "dropout=0.3"], "tuned-run: was started with dropout: 0.1, not 0.3; choose"),
        (["--out", "seeds", "--seeds", "2", "--dev", "more.conll"], "seeds/seed-0: was started with another dev set"),
    ],
)
def test_fine_tuning_for_nothing_is_refused(folder: Path, changes: list[str], says: str, run_main: RunMain) -> None:
    """Errors come before the fine-tuning, which may take hours."""
    Path("run").mkdir()
    Path("run/notes.txt").touch()
    Path("more.conll").write_text(Path("text.conll").read_text() + "\nw9\tO\n")
    run("warm", "model", "text.conll", "--device", "cpu")
    short = ["--set", "training.max_epochs=1", "--device", "cpu"]
    if "begun" in changes:
        run(*TRAIN, *short, "--elmo", "none", "--out", "begun")
    if "untuned" in changes:
        run(*TRAIN, *short, "--elmo", "model", "--out", "untuned")
    if "tuned-run" in changes or "seeds" in changes:
        many = ["--seeds", "2"] if "seeds" in changes else []
        run(*TRAIN, *short, "--elmo", "model", "--finetune", "other", "--out", changes[1], *many)
    before = sorted(folder.rglob("*"))
    code, out, error = run_main([*TUNE, "--out", "run", *changes])
    assert (code, out) == (2, "")
    assert error.startswith(f"elmo: {says}"), error
    assert sorted(folder.rglob("*")) == before


def test_a_fine_tuned_model_may_be_given_a_warm_state(folder: Path) -> None:
    run(*TUNE, "--out", "run")
    run("warm", "tuned", "text.conll", "--device", "cpu")
    run("warm", "model", "text.conll", "--device", "cpu")
    assert run(*TUNE, "--out", "warm", "--set", "elmo.state=warm").startswith("warm: dev f1 ")


def test_a_fine_tuned_folder_belongs_to_one_model_and_text(folder: Path) -> None:
    run(*TUNE, "--out", "run")
    other = make_model()
    torch.nn.init.ones_(other.bilm.char_encoder.embedding.weight)
    save_native(other, folder / "other")
    with pytest.raises(ElmoError, match="tuned/softmax: was begun with another model; choose another folder"):
        run(*TUNE, "--out", "run2", "--elmo", "other")
    Path("more.conll").write_text(Path("text.conll").read_text() + "\nw9\tO\n")
    with pytest.raises(
        ElmoError, match="tuned: holds a fine-tuning on other text, on text that was cut in another way, "
    ):
        run(*TUNE, "--out", "run2", "--train", "more.conll")


def test_the_coverage_of_word_vectors_is_reported(folder: Path, run_main: RunMain) -> None:
    """The coverage is one line on stderr. Without a file of vectors, the line says that they are trained."""
    Path("a.txt").write_text("w1 1 2\nto 3 4\n")
    Path("b.txt").write_text("ann 5 6 7\nw2 8 9 10\n")
    train = [*TRAIN, "--elmo", "none", "--json", "--set", "training.max_epochs=1"]
    files = ["--set", "words.vectors=a.txt,b.txt", "--set", "words.dim=5"]
    code, out, error = run_main([*train, *files, "--out", "run"])
    assert (code, json.loads(out)["done"]) == (0, True)
    covered = "vectors for 4 of the data's 12 words (33.3 %) and 11 of its 23 tokens (47.8 %)"
    assert [line for line in error.splitlines() if line.startswith("elmo: ")] == [
        f"elmo: a.txt, b.txt: {covered}; 4 words are kept in all"
    ]
    code, out, error = run_main([*train, "--set", "words.trainable=false", "--out", "fixed"])
    assert (code, json.loads(out)["done"]) == (0, True)
    assert "elmo: words.vectors is null: word vectors are random at first and are trained" in error


def test_a_cache_is_kept_and_the_bilm_is_left_out(folder: Path) -> None:
    options = ["--set", "training.max_epochs=1", "--cache", "kept", "--no-bilm", "--tensorboard", "--device", "cpu"]
    run(*TRAIN, "--elmo", "model", "--out", "run", *options)
    assert len([*Path("kept").iterdir()]) == 1
    assert {"tensorboard", "weights.safetensors"} <= {path.name for path in Path("run").iterdir()}
    assert not {"bilm", "vectors"} & {path.name for path in Path("run").iterdir()}
    Path("model").rename("elsewhere")
    result = CliRunner().invoke(cli, ["task", "evaluate", "run", "text.conll"])
    assert "model: no such file or folder" in str(result.exception)


def test_info_describes_a_folder_of_seeds_that_are_not_all_trained(folder: Path) -> None:
    run(*TRAIN, "--set", "training.max_epochs=1", "--out", "run", "--elmo", "none", "--seeds", "2")
    for path in ("run/config.json", "run/README.md", "run/seed-1/results.json"):
        Path(path).unlink()
    out = run("info", "run")
    assert out.startswith("run: a model for the task ner, without ELMo, seeds 0; dev f1 ")
    assert out.endswith("; not finished; run the same elmo task train again to continue.\n")
    facts = json.loads(run("info", "run", "--json"))
    assert (facts["task"], facts["done"], [each["seed"] for each in facts["runs"]]) == ("ner", False, [0])


def test_seeds_and_json(folder: Path) -> None:
    short = ["--set", "training.max_epochs=2", "--out", "run"]
    out = run(*TRAIN, *short, "--elmo", "none", "--seeds", "2")
    assert out.startswith("run: dev f1 ")
    assert " ± " in out
    assert out.endswith(", of 2 seeds\n")
    figures = json.loads(run(*TRAIN, *short, "--elmo", "none", "--seeds", "2", "--json"))
    assert figures["done"]
    assert [result["seed"] for result in figures["runs"]] == [0, 1]


@pytest.mark.slow
def test_a_killed_training_continues(folder: Path) -> None:
    """The same command ends with the same metrics as one that was never killed."""
    changes = {"training.checkpoint_every_minutes": 0.000001, "training.max_epochs": 30, "training.patience": 30}
    arguments = [*TRAIN, *set_options(changes), "--device", "cpu", "--elmo", "model", "--out"]
    command = [sys.executable, "-m", "elmo", *arguments, "killed"]
    with started(*command) as process:
        wait_until(partial(has_rows, folder / "killed", 1), process)
        process.kill()
    assert not (folder / "killed" / "results.json").exists()
    run(*arguments, "killed")
    run(*arguments, "whole")
    curves = [rows_without_times(folder / name) for name in ("killed", "whole")]
    assert len(curves[0]) == 30
    assert curves[0] == curves[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["task", "train", "pos", "--train", "a", "--dev", "a", "--elmo", "none", "--out", "run"],
            "task 'pos' is unkn",
        ),
        (["task", "train", "ner", "--train", "a", "--dev", "a", "--elmo", "none", "--out", "run"], "a: no such file"),
        ([*TRAIN, "--elmo", "nowhere", "--out", "run"], "nowhere: no such file or folder"),
        (
            [*TRAIN, "--elmo", "model", "--out", "run", "--set", "elmo.on=1"],
            "small.yaml with elmo.on=1: elmo: unknown key 'on'",
        ),
        ([*TRAIN, "--elmo", "model", "--out", "run", "--set", "lstm"], "--set lstm: expected KEY=VALUE"),
        ([*TRAIN, "--elmo", "model", "--out", "model"], "model: is a biLM and not the run folder of a task"),
        (["task", "evaluate", "model", "text.conll"], "model: is a biLM and not the run folder of a task"),
        (
            ["task", "text", "ner", "text.conll", "--set", "dropout=0.1"],
            "--set dropout: has no effect here; ",
        ),
        (["task", "evaluate", "nowhere", "text.conll", "--predictions", "text.conll"], "text.conll: exists already"),
        (["task", "evaluate", "nowhere", "text.conll", "--predictions", "no/out.conll"], "no/out.conll: there is no"),
        (["task", "predict", "nowhere", "text.conll"], "nowhere: is not the run folder of a task"),
        (["task", "predict", "nowhere", "nothing.txt"], "nothing.txt: no such file"),
        (["task", "predict", "nowhere", "*.*"], "*.*: matches "),
    ],
)
def test_bad_input_is_one_sentence(folder: Path, arguments: list[str], says: str, run_main: RunMain) -> None:
    before = sorted(folder.rglob("*"))
    code, out, error = run_main(arguments)
    assert (code, out) == (2, "")
    assert error.startswith(f"elmo: {says}"), error
    assert error.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


def test_a_name_stands_for_a_layout() -> None:
    """If CoNLL-U were read as plain text, its comments and columns would count as words."""
    assert layout_of(get_task("tag"), "x.conllu") == "conllu"
    assert layout_of(get_task("tag"), "x.txt") == layout_of(get_task("sst"), "x.txt") == PLAIN
    with pytest.raises(ElmoError, match=r"x\.conllu\.gz: is CoNLL-U by its name, which sst does not read"):
        layout_of(get_task("sst"), "x.conllu.gz")


def test_help_names_every_task() -> None:
    shown = run("task", "--help")
    assert all(f"\n  {task} " in shown for task in TASKS)


def test_help_and_docs_say_what_each_task_reads_and_writes() -> None:
    """A new task has to be added to all of these lists."""
    table = run("task", "predict", "--help").partition("a line holds\n")[2].partition("\n\n")[0]
    names = [name for row in table.splitlines() for name in row.strip().partition("  ")[0].split(", ")]
    assert sorted(names) == sorted(TASKS)
    keys = re.findall(r"^ +- (.+?): ", elmo.tasks.predict.__doc__ or "", re.M)
    assert sorted(", ".join(keys).split(", ")) == sorted(TASKS)
    page = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| task \|.*\n((?:\|.*\n)+)", page, re.M)
    first_cells = [" ".join(row.split("|")[1] for row in rows.splitlines()) for rows in tables]
    assert [sorted(re.findall(r"`(\w+)`", cells)) for cells in first_cells] == [sorted(TASKS)] * 3


def names_before(words: str, text: str, mark: str = "`") -> list[str]:
    """Return the tasks in a list such as "`snli`, `squad` and `classify`" that stands before `words` in a text."""
    name = rf"{mark}\w+{mark}"
    (found,) = re.findall(rf"((?:{name}, )*{name} and {name}),? {words}", " ".join(text.split()))
    return sorted(re.findall(r"\w+", found.replace(" and ", " ")))


def test_lists_of_tasks_in_sentences_are_complete() -> None:
    """What a task can do decides in which of them it belongs."""
    tasks = [get_task(name) for name in TASKS]
    combined = sorted(task.name for task in tasks if type(task).combine is not Task.combine)
    split = sorted(task.name for task in tasks if task.takes_sentence)
    conllu = sorted(task.name for task in tasks if "conllu" in task.layouts)
    page, tour, words = (
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("tasks.md", "tour.md", "word-vectors.md")
    )
    evaluate, predict = (run("task", command, "--help") for command in ("evaluate", "predict"))
    (ensemble,) = re.findall(r"of all RUNs \(([\w, ]+)\)", " ".join(evaluate.split()))
    assert sorted(ensemble.split(", ")) == combined
    assert names_before("several models can predict together", page) == combined
    assert names_before("`elmo task evaluate RUN... FILE --ensemble`", tour) == combined
    assert names_before("also paragraphs", predict, "") == names_before("can split it", page) == split
    assert names_before("also conllu", predict, "") == conllu
    rows = re.findall(r"^ *(\S+(?:, \S+)*)  .* or JSON with", predict, re.M)
    assert names_before("a line can also be a JSON object", page) == sorted(", ".join(rows).split(", "))
    (widths,) = re.findall(r"- `words\.dim` is the width .*?(?=\n\n)", words, re.S)
    assert sorted(re.findall(r"`(\w+)`", widths)) == sorted(TASKS)
