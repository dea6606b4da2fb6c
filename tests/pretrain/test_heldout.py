"""A pretraining run measures held-out text, and ends when its patience is exhausted."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands import RunMain
from commands import run as run_command
from elmo.errors import ElmoError
from elmo.formats import load
from elmo.formats.card import read_figures
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.objective import TrainingBatch
from elmo.pretrain.perplexity import Perplexity, SentenceScore, score_sentences
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare
from elmo.text.reading import read_sentences
from elmo.training.metrics import read_rows
from elmo.training.recipes import write_recipe
from running import assert_same_end, train


@contextmanager
def after_each_score(then: Callable[[SentenceScore], object]) -> Generator[None]:
    """Call `then` with the score of each sentence of held-out text, before the next one is scored."""

    def scores(*arguments: Any) -> Iterator[SentenceScore]:
        for score in score_sentences(*arguments):
            then(score)
            yield score

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmo.pretrain.perplexity.score_sentences", scores)
        yield


def test_options_and_heldout_text_reach_the_run(
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_main: RunMain,
) -> None:
    """Held-out text is read in the same way as the corpus, which here was raw text in lower case."""
    monkeypatch.chdir(tmp_path)
    Path("raw.txt").write_text("He came. She went.\n" * 20)
    corpus = prepare(
        ["raw.txt"], tmp_path / "corpus", min_count=1, workers=1, tokenizer="ptb", text="paragraphs", lowercase=True
    )
    write_recipe(tmp_path / "recipe.yaml", recipe())
    options = ["--recipe", "recipe.yaml", "--max-steps", "3", "--evaluate-every", "2", "--heldout", "raw.txt"]
    options += ["--max-minutes", "60"]
    code, out, _ = run_main(["pretrain", "corpus", "run", *options, "--device", "cpu", "--json"])
    rows = {row["step"]: row["heldout_perplexity"] for row in read_rows(tmp_path / "run" / "metrics.csv")}
    assert (code, json.loads(out)["step"], list(rows)) == (0, 3, [2, 3])
    wanted = Perplexity.of(score_sentences(load("run"), read_sentences(["raw.txt"], corpus.reading)))
    assert wanted.num_oov == 0
    assert load_pretraining_recipe(str(tmp_path / "run" / "recipe.yaml")).training.max_minutes == 60
    assert rows[3] == pytest.approx(wanted.mean)


def test_the_command_says_that_held_out_text_was_not_measured(
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    run_main: RunMain,
) -> None:
    """A signal interrupts the last measurement. The same command makes up for it."""
    heldout, settings = tmp_path / "heldout.txt", tmp_path / "recipe.yaml"
    heldout.write_text("word1 word3 word9\n" * 40)
    write_recipe(settings, recipe(max_steps=2))
    command = ["pretrain", corpus.folder, tmp_path / "run", "--recipe", settings, "--heldout", heldout]
    with after_each_score(lambda score: signal.raise_signal(signal.SIGTERM)):
        code, out, _ = run_main([*map(str, command), "--device", "cpu"])
    assert code == 75
    assert out.endswith("; held-out text was not measured after the last step: run the same command again\n")
    with after_each_score(lambda score: signal.raise_signal(signal.SIGTERM)):
        code, out, _ = run_main([*map(str, command), "--device", "cpu", "--json"])
    assert (code, json.loads(out)["done"]) == (75, False)
    assert re.search(r", held-out perplexity \d+\.\d\d\n$", run_command(*command, "--device", "cpu"))


def test_other_heldout_text_is_measured(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """A finished run reports the perplexity of the text that it is given, not of the one that it was given before."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("word1 word3 word9\n" * 3)
    Path("b.txt").write_text("word39 word0 word2 word8\n")
    write_recipe(Path("recipe.yaml"), recipe(max_steps=5))
    command = ["pretrain", str(corpus.folder), "run", "--recipe", "recipe.yaml", "--device", "cpu", "--json"]
    found: list[float] = []
    for name in ("a.txt", "b.txt", "a.txt"):
        code, out, _ = run_main([*command, "--heldout", name])
        assert code == 0
        found.append(json.loads(out)["heldout_perplexity"])
        wanted = Perplexity.of(score_sentences(load("run"), read_sentences([name], corpus.reading)))
        assert found[-1] == pytest.approx(wanted.mean)
    assert found[0] == pytest.approx(found[2])
    assert found[0] != pytest.approx(found[1])
    assert [row["step"] for row in read_rows(tmp_path / "run" / "metrics.csv")] == [5, 5, 5]


@pytest.mark.parametrize(("losses", "end"), [((5.0, 6.0, 4.0, 5.0, 6.0, 1.0), 5), ((5.0, 5.0, 5.0, 1.0), 3)], ids=str)
def test_a_better_measurement_begins_the_patience_again(
    losses: tuple[float, ...],
    end: int,
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is as good as the best is no better."""
    found = iter(losses)
    monkeypatch.setattr("elmo.pretrain.loop.perplexity_unless", lambda *_: Perplexity((next(found),), 1, 1, 0))
    settings = recipe(max_steps=20, evaluate_every_steps=1, patience=2)
    run = Pretrainer(corpus, tmp_path / "run", settings, heldout=[["word1"]], device="cpu")
    run.train()
    assert (run.progress.step, run.progress.best_step) == (end, end - 2)


def test_before_the_first_measurement_the_weights_are_the_current_ones(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    settings = recipe(max_steps=20, evaluate_every_steps=10, patience=2)
    run = Pretrainer(corpus, tmp_path / "run", settings, heldout=[["word1"]], device="cpu")
    run.step()
    run.save()
    saved = load(tmp_path / "run").bilm.state_dict()
    torch.testing.assert_close(saved, run.model.bilm.state_dict(), rtol=0, atol=0)


def test_patience_compares_the_same_text(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    settings = recipe(max_steps=5, evaluate_every_steps=2, patience=3)
    texts = [["word1", "word3"]], [["word3", "word1"]]
    Pretrainer(corpus, tmp_path / "run", settings, heldout=texts[0], device="cpu").train()
    again = Pretrainer(corpus, str(tmp_path / "run"), settings, heldout=map(list, texts[0]), device="cpu")
    assert again.is_done  # a folder may be a string, and text may be streamed
    with pytest.raises(ElmoError, match=r"run: was begun with other held-out text, .*; name that text again, or"):
        Pretrainer(corpus, tmp_path / "run", settings, heldout=texts[1], device="cpu")


def test_a_tokenizer_that_a_corpus_names_is_not_run(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """A corpus may come from a stranger. The user can name the function, or another tokenizer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("mine.py").write_text("def cut(text):\n    open('was-run', 'a').close()\n    return text.split()\n")
    Path("text.txt").write_text("word1 word3 word9\n" * 30)
    prepare(["text.txt"], tmp_path / "corpus", min_count=1, workers=1, tokenizer="mine:cut")
    Path("was-run").unlink()
    write_recipe(Path("recipe.yaml"), recipe(max_steps=1))
    command = ["pretrain", "corpus", "run", "--recipe", "recipe.yaml", "--device", "cpu"]
    code, out, err = run_main([*command, "--heldout", "text.txt"])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("elmo: corpus: names tokenizer mine:cut, a function from outside of this package; ")
    assert err.endswith("; if you trust it, pass --tokenizer mine:cut\n")
    assert not Path("run").exists()
    for name in ("whitespace", "mine:cut"):
        assert not Path("was-run").exists()
        assert run_main([*command, "--heldout", "text.txt", "--tokenizer", name])[0] == 0
    assert Path("was-run").exists()
    Path("x.conllu").write_text("\t".join(("1", "word1", *"________")) + "\n")
    assert run_main([*command, "--heldout", "x.conllu"])[0] == 0
    _, _, err = run_main([*command, "--heldout", "x.conllu", "--tokenizer", "mine:cut"])
    assert err.startswith("elmo: tokenizer mine:cut: the words of CoNLL-U are given; leave out the tokenizer")
    _, _, err = run_main([*command, "--tokenizer", "mine:cut"])
    assert err.startswith("elmo: --tokenizer: there is no held-out text to cut")
    _, _, err = run_main([*command, "--encoding", "latin-1"])
    assert err.startswith("elmo: --encoding: there is no held-out text to read")


def test_heldout_text_of_a_treebank_may_be_plain(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """It was read as CoNLL-U, like the corpus, and refused for its columns. CoNLL-U may also have another name."""
    monkeypatch.chdir(tmp_path)
    words = [f"{number}\t{word}" + "\t_" * 8 for number, word in enumerate(("Stála", "tam", "lípa", "."), 1)]
    treebank = ("\n".join(words) + "\n\n") * 5
    for name in ("train.conllu", "words.txt"):
        Path(name).write_text(treebank)
    Path("plain.txt").write_text("Stála tam lípa .\n" * 5)
    Path("raw.txt").write_text("Stála tam lípa.\n" * 5)
    prepare(["train.conllu"], tmp_path / "corpus", min_count=1, workers=1)
    write_recipe(Path("recipe.yaml"), recipe(max_steps=1))
    command = ["pretrain", "corpus", "run", "--recipe", "recipe.yaml", "--device", "cpu", "--json", "--heldout"]
    found = []
    for options in (["train.conllu"], ["words.txt"], ["plain.txt"], ["raw.txt", "--tokenizer", "words"]):
        shutil.rmtree("run", ignore_errors=True)
        code, out, err = run_main([*command, *options])
        assert code == 0, err
        found.append(json.loads(out)["heldout_perplexity"])
    assert found == pytest.approx(found[:1] * 4)


def test_heldout_text_may_have_another_encoding_than_the_corpus(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "Před domem stála lípa .\n" * 5
    Path("text.txt").write_bytes(text.encode("cp1250"))
    Path("heldout.txt").write_bytes(text.encode())
    prepare(["text.txt"], tmp_path / "corpus", min_count=1, workers=1, encoding="cp1250")
    write_recipe(Path("recipe.yaml"), recipe(max_steps=1))
    command = ["pretrain", "corpus", "run", "--recipe", "recipe.yaml", "--device", "cpu", "--heldout"]
    assert "heldout.txt: is UTF-8, and not CP1250" in run_main([*command, "heldout.txt"])[2]
    assert run_main([*command, "heldout.txt", "--encoding", "utf-8"])[0] == 0
    assert "text.txt: is part of the text that the corpus was made from" in run_main([*command, "text.txt"])[2]


def test_heldout_text_is_measured_every_few_steps(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    settings = recipe(evaluate_every_steps=10)
    Pretrainer(corpus, tmp_path / "run", settings, heldout=[["word1", "word3"], ["word2"]], device="cpu").train()
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [row["step"] for row in rows if "heldout_perplexity" in row] == [10, 20, 30]
    assert f"{rows[-1]['heldout_perplexity']:.2f}" in (tmp_path / "run" / "README.md").read_text()


def test_heldout_text_is_measured_at_least_at_the_end(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    Pretrainer(corpus, tmp_path / "run", recipe(max_steps=12), heldout=[["word1"]], device="cpu").train()
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [row["step"] for row in rows if "heldout_perplexity" in row] == [12]


def test_heldout_text_given_at_the_end_is_measured(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """A finished run is measured without another step, and so is a stopped run whose end is moved to the step where it
    stopped. Steps since the last row of metrics are then reported, too."""
    heldout = [["word1", "word3"]]
    train(corpus, tmp_path / "done", recipe(max_steps=10))
    run = Pretrainer(corpus, tmp_path / "done", recipe(max_steps=10), heldout=heldout, device="cpu")
    run.train()
    assert run.progress.heldout_perplexity == pytest.approx(Perplexity.of(score_sentences(run.model, heldout)).mean)
    rows = read_rows(tmp_path / "done" / "metrics.csv")
    assert [(row["step"], "loss" in row, "heldout_perplexity" in row) for row in rows][-2:] == [
        (10, True, False),
        (10, False, True),
    ]
    assert f"{run.progress.heldout_perplexity:.2f}" in (tmp_path / "done" / "README.md").read_text()
    train(corpus, tmp_path / "stopped", recipe(max_steps=10), stop_after=8)
    Pretrainer(corpus, tmp_path / "stopped", recipe(max_steps=8), heldout=heldout, device="cpu").train()
    last = read_rows(tmp_path / "stopped" / "metrics.csv")[-1]
    assert (last["step"], "loss" in last, "heldout_perplexity" in last) == (8, True, True)


def test_an_old_measurement_is_not_reported_as_that_of_the_end(
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    run_main: RunMain,
) -> None:
    (tmp_path / "heldout.txt").write_text("word1 word3\n")
    write_recipe(tmp_path / "recipe.yaml", recipe())
    command = ["pretrain", str(corpus.folder), str(tmp_path / "run"), "--recipe", str(tmp_path / "recipe.yaml")]
    command += ["--device", "cpu", "--json"]
    found = []
    for options in (["--max-steps", "2", "--heldout", str(tmp_path / "heldout.txt")], ["--max-steps", "4"]):
        _, out, _ = run_main([*command, *options])
        found.append(json.loads(out)["heldout_perplexity"])
    assert found[0] is not None
    assert found[1] is None


def test_heldout_text_without_words_is_refused(
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    run_main: RunMain,
) -> None:
    options = ["--recipe", "tiny", "--heldout", str(tmp_path / "empty.txt")]
    for text in ("\n\n", "<S> </S>\n"):
        (tmp_path / "empty.txt").write_text(text)
        code, _, err = run_main(["pretrain", str(corpus.folder), str(tmp_path / "run"), *options])
        assert (code, err) == (2, f"elmo: {tmp_path / 'empty.txt'}: holds no text\n")
    with pytest.raises(ElmoError, match=r"^`heldout`: holds no tokens except <S> and </S>"):
        Pretrainer(corpus, tmp_path / "run", recipe(max_steps=2), heldout=[["<S>", "</S>"]], device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_stop_is_requested_while_heldout_text_is_measured(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The measurement is abandoned, and the run is measured at its end when it continues."""
    heldout = [["word1", "word3"]] * 1000
    run = Pretrainer(
        corpus, tmp_path / "run", recipe(max_steps=9, evaluate_every_steps=5), heldout=heldout, device="cpu"
    )
    scored: list[int] = []

    def stop(score: SentenceScore) -> None:
        scored.append(len(score.tokens))
        run.stop()

    with after_each_score(stop):
        run.train()
    assert len(scored) < 1000
    assert (run.stopped, run.progress.step, run.progress.heldout_perplexity) == (True, 6, None)
    again = Pretrainer(
        corpus, tmp_path / "run", recipe(max_steps=9, evaluate_every_steps=5), heldout=heldout, device="cpu"
    )
    again.train()
    assert again.progress.heldout_step == 9


def test_a_run_with_patience_ends_early_with_the_weights_of_its_best_step(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The learning rate is so high that perplexity soon rises. The folder holds the weights of the best step, and the
    checkpoint those of the last one."""
    settings = recipe(
        optimizer="adamw", learning_rate=0.3, max_steps=200, evaluate_every_steps=2, patience=3, log_every_steps=4
    )
    heldout = [["word1", "word3"], ["word7"]] * 5
    run = Pretrainer(corpus, tmp_path / "run", settings, heldout=heldout, device="cpu")
    result = run.train()
    measured = {
        int(row["step"]): row["heldout_perplexity"]
        for row in read_rows(tmp_path / "run" / "metrics.csv")
        if "heldout_perplexity" in row
    }
    best = min(measured, key=measured.__getitem__)
    assert run.is_done
    assert list(measured) == list(range(2, run.progress.step + 1, 2))
    assert run.progress.step == best + 6 < 200, "three measurements after the best one"
    assert (run.progress.best_step, run.progress.best_perplexity) == (best, measured[best])
    saved = load(tmp_path / "run")
    assert Perplexity.of(score_sentences(saved, heldout)).mean == measured[best] < run.progress.heldout_perplexity
    torch.testing.assert_close(saved.bilm.state_dict(), result.bilm.state_dict(), rtol=0, atol=0)
    assert not torch.equal(result.bilm.char_encoder.embedding.weight, run.model.bilm.char_encoder.embedding.weight)
    assert read_figures(tmp_path / "run")["weights of"] == (f"step {best}, held-out perplexity {measured[best]:.2f}")


def train_until(run: Pretrainer, stop_after: int | None) -> Pretrainer:
    """Train, and ask the run to stop after this step; None trains to the end."""
    train_on = run.train_on

    def train_and_stop(batch: TrainingBatch) -> list[float]:
        if run.progress.step == stop_after:
            run.stop()
        return train_on(batch)

    run.train_on = train_and_stop
    run.train()
    return run


def test_weights_are_kept_if_they_are_the_best_however_the_run_came_to_its_end(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """A run that is stopped at a step with a row of metrics, and ends there, measures only at its second start."""
    heldout = [["word1", "word3"]] * 5

    def train(name: str, max_steps: int, stop_after: int | None = None) -> Pretrainer:
        settings = recipe(max_steps=max_steps, evaluate_every_steps=3, log_every_steps=2, patience=5)
        run = Pretrainer(corpus, tmp_path / name, settings, heldout=heldout, device="cpu")
        return train_until(run, stop_after)

    whole = train("whole", 4).progress
    assert train("parts", 10, stop_after=4).progress.step == 4
    parts = train("parts", 4).progress
    assert whole.best_step == 4, "or this test shows nothing"
    assert (parts.best_step, parts.best_perplexity) == (whole.best_step, whole.best_perplexity)


def test_an_average_of_the_weights_is_measured_and_kept(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """By the definition of `average`, the weights of a step enter the average with a share of 4 / step, at most 1."""
    heldout, seen = [["word1", "word3"]], []
    run = Pretrainer(corpus, tmp_path / "run", recipe(average=0.25, max_steps=12), heldout=heldout, device="cpu")
    train_on = run.train_on

    def watched(batch: TrainingBatch) -> list[float]:
        losses = train_on(batch)
        seen.append(run.model.bilm.char_encoder.projection.weight.detach().clone())
        return losses

    run.train_on = watched
    result = run.train()
    expected = torch.zeros_like(seen[0])
    for step, weights in enumerate(seen, 1):
        share = min(1, 4 / step)
        expected = (1 - share) * expected + share * weights
    for model in (result, load(tmp_path / "run")):
        torch.testing.assert_close(model.bilm.char_encoder.projection.weight.detach(), expected)
        assert Perplexity.of(score_sentences(model, heldout)).mean == run.progress.heldout_perplexity
    assert torch.equal(run.model.bilm.char_encoder.projection.weight, seen[-1]), "training goes on from the weights"
    assert not torch.allclose(seen[-1], expected)


@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("stops", [[1], [4, 5, 9], [10], [13]], ids=str)
def test_patience_goes_on_where_it_was(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, stops: list[int], average: float
) -> None:
    """The run is stopped before and after measurements, and during one, which is finished before the run stops."""
    settings = recipe(
        optimizer="adamw",
        learning_rate=0.3,
        dropout=0.2,
        max_steps=14,
        evaluate_every_steps=2,
        patience=20,
        average=average,
    )
    heldout = [["word1", "word3"]] * 40

    def start(name: str, stop_after: int | None = None) -> Pretrainer:
        run = Pretrainer(corpus, tmp_path / name, settings, heldout=heldout, device="cpu")
        return train_until(run, stop_after)

    whole = start("whole")
    for stop in stops:
        assert not start("parts", stop).is_done
    parts = start("parts")
    assert_same_end(tmp_path / "whole", tmp_path / "parts")
    measured = Perplexity.of(score_sentences(load(tmp_path / "whole"), heldout)).mean
    assert measured == whole.progress.best_perplexity, "the model is the one that was measured"
    assert (parts.progress.best_step, parts.progress.num_worse) == (whole.progress.best_step, whole.progress.num_worse)
    torch.testing.assert_close(
        load(tmp_path / "parts").bilm.state_dict(), load(tmp_path / "whole").bilm.state_dict(), rtol=0, atol=0
    )


def test_more_patience_lets_an_ended_run_go_on(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """The run goes on as if it had had that patience from the start. Without any, it had kept no best weights."""
    heldout = [["word1", "word3"]] * 40

    def start(name: str, patience: int | None) -> Pretrainer:
        settings = recipe(optimizer="adamw", learning_rate=0.3, max_steps=40, evaluate_every_steps=2, patience=patience)
        run = Pretrainer(corpus, tmp_path / name, settings, heldout=heldout, device="cpu")
        run.train()
        return run

    whole, ended = start("whole", 6), start("parts", 2).progress.step
    assert ended < whole.progress.step
    parts = start("parts", 6)
    assert parts.progress.step == whole.progress.step
    assert_same_end(tmp_path / "whole", tmp_path / "parts")
    with pytest.raises(ElmoError, match=r"the run was started with training\.patience: 6, not null"):
        start("parts", None)


def test_held_out_text_may_come_as_lists_or_arrays(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """The same words are the same text, with which a run with patience goes on."""
    heldout = [["word1", "word3"], ["word2"]]
    settings = recipe(max_steps=2, evaluate_every_steps=1, patience=5)
    Pretrainer(corpus, tmp_path / "run", settings, heldout=heldout, device="cpu").train()
    arrays = [np.array(sentence) for sentence in heldout]
    assert Pretrainer(corpus, tmp_path / "run", settings, heldout=arrays, device="cpu").is_done


def test_patience_without_held_out_text_is_refused(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    for settings, heldout in ((recipe(evaluate_every_steps=5, patience=2), []), (recipe(patience=2), [["word1"]])):
        with pytest.raises(
            ElmoError, match=r"^training\.patience: needs held-out text .*training\.evaluate_every_steps\)$"
        ):
            Pretrainer(corpus, tmp_path / "run", settings, heldout=heldout, device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_last_measurement_that_is_abandoned_leaves_no_row(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    train(corpus, tmp_path / "run", recipe(max_steps=4))
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    heldout = [["word1", "word3"]] * 100
    run = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=4), heldout=heldout, device="cpu")
    with after_each_score(lambda score: run.stop()):
        run.train()
    assert run.progress.heldout_perplexity is None
    assert read_rows(tmp_path / "run" / "metrics.csv") == rows
    Pretrainer(corpus, tmp_path / "run", recipe(max_steps=4), heldout=heldout, device="cpu").train()
    *before, last = read_rows(tmp_path / "run" / "metrics.csv")
    assert len(before) == len(rows)
    assert last["heldout_perplexity"] > 1
