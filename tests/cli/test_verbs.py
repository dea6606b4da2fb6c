"""All verbs have help with examples, and end with one sentence and exit code 2 after bad input."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, cast
from unittest.mock import Mock

import click
import pytest
import torch
from click.testing import CliRunner

import elmo
import make_bilm_hdf5
import make_many_langs
from bridge import make_model
from commands import RunMain
from commands import run as run_command
from elmo import formats
from elmo.cli.main import VERBS, cli
from elmo.cli.shared import as_typed
from elmo.formats import save_native
from elmo.pretrain.perplexity import Perplexity, score_sentences
from elmo.targets import unfinished_folder
from elmo.text.prepare import prepare
from elmo.text.reading import TEXTS
from elmo.text.tokenizers import KINDS
from running import started, wait_until


class Done(NamedTuple):
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> Callable[..., Done]:
    """Return a function that runs `elmo` in this process, since a new one would take 2 seconds to start."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: Done(*run_main([*arguments]))


def options_of(command: click.Command, name: str = "elmo") -> dict[str, set[str]]:
    """Return the options of a command, or of the commands in a group, by what people type."""
    if isinstance(command, click.Group):
        context, found = click.Context(command), dict[str, set[str]]()
        for inner in command.list_commands(context):
            found |= options_of(cast("click.Command", command.get_command(context, inner)), f"{name} {inner}")
        return found
    return {name: {opt for parameter in command.params for opt in parameter.opts}}


@pytest.mark.parametrize("command", sorted({*options_of(cli), *(f"elmo {verb}" for verb in VERBS)}))
def test_help_has_examples_of_the_command(command: str) -> None:
    assert f"{command} " in run_command(*command.split()[1:], "--help").split("Examples:")[1]


@pytest.mark.parametrize("verb", ["prepare", "embed"])
def test_help_lists_every_way_to_read_text(verb: str) -> None:
    """All commands that read text have the options of one of these two."""
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    options = {option.name: option for option in command.params}
    assert all(kind in str(getattr(options["tokenizer"], "help", "")) for kind in KINDS)
    assert tuple(getattr(options["text"].type, "choices", ())) == TEXTS


def test_help_lists_every_verb_without_importing_torch() -> None:
    """`OMP_WAIT_POLICY` is set before any command imports torch."""
    code = (
        "import os, sys; from elmo.cli.main import main\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules and os.environ['OMP_WAIT_POLICY'] == 'passive'"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    command = [sys.executable, "-c", code, "--help"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
    assert done.returncode == 0, done.stderr
    assert all(f"  {verb} " in done.stdout for verb in VERBS)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pretrain", "nowhere", "run"], "elmo: nowhere: no such corpus folder; make one with 'elmo prepare nowhere"),
        (["perplexity", "nowhere", "text"], "elmo: text: no such file"),
        (["info", "nowhere"], "elmo: nowhere: no such file or folder"),
        (["convert", "nowhere", "there"], "elmo: nowhere: no such file or folder"),
        (["finetune", "nowhere", "there", "text"], "elmo: nowhere: no such file or folder"),
        (["finetune", "en", "there", "text"], "elmo: text: no such file"),
        (["finetune", "en", "there", "text", "--min-count", "3"], "elmo: --min-count: has no effect without --new-s"),
        (["finetune", "en", "there", "text", "--set", "evaluate_every_steps=9"], "elmo: training.evaluate_every_steps"),
        (
            ["finetune", "en", "there", "text", "--set", "optimizer=muon"],
            "elmo: --learning-rate: the default is for Adagrad",
        ),
        (
            ["pretrain", "nowhere", "run", "--evaluate-every", "5"],
            "elmo: --evaluate-every: there is no text to measure",
        ),
        (
            ["pretrain", "nowhere", "run", "--set", "training.evaluate_every_steps=5"],
            "elmo: --evaluate-every: there is no text to measure",
        ),
    ],
)
def test_bad_input_gives_one_sentence(
    arguments: list[str], sentence: str, run: Callable[..., Done], tmp_path: Path
) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_verb_is_met_with_a_suggestion(run: Callable[..., Done]) -> None:
    done = run("pretain", "corpus", "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("Error: No such command 'pretain'. Did you mean 'pretrain'?\n")


def test_files_of_a_pattern_without_quotation_marks_are_explained(run: Callable[..., Done], tmp_path: Path) -> None:
    for name in ("a.txt", "b c.txt"):
        (tmp_path / name).write_text("A play .\n")
    hint = "put the pattern in quotation marks"
    assert hint in run("pretrain", "corpus", "run", "--heldout", "a.txt", "b c.txt").stderr
    assert hint not in run("pretrain", "corpus", "run", "more").stderr
    assert hint not in run("pretrain", "corpus", "run", "long" * 100).stderr


def test_arguments_in_messages_become_options() -> None:
    assert as_typed("a.h5: exists already; remove it, or pass `overwrite=True`") == (
        "a.h5: exists already; remove it, or pass --overwrite"
    )
    assert as_typed("prepare the text again with `lowercase=True`") == "prepare the text again with --lowercase"
    assert as_typed("pass `tokenizer='spacy:de'` (`text='wrapped'`, `layout='conllu'`), or `start=MODEL`") == (
        "pass --tokenizer spacy:de (--text wrapped, --text conllu), or --from MODEL"
    )
    assert as_typed("pass `tokenizer='m:f; evil'`") == "pass --tokenizer 'm:f; evil'"
    for name in ("m:f`$(evil)`", "m:f'`$(evil)", "m:f\"'`$(evil)"):
        assert shlex.split(as_typed(f"pass `tokenizer={name!r}`")) == ["pass", "--tokenizer", name]
    for strange in (r"`a='\x'`", r"`a='\N{none}'`", "`a='x\ny'`", "`a='\0'`"):  # quoted from a file, and no Python
        assert as_typed(strange) == strange
    assert as_typed("`max_vocabulary`: 2 is too small") == "--max-vocabulary: 2 is too small"
    assert as_typed("`epochs`: nan is not positive") == "--epochs: nan is not positive"
    assert as_typed("`devices`: torch finds no GPU") == "--devices: torch finds no GPU"
    for kept in (
        "set elmo.cache_dtype=float16 or my.text=1; 'year=1840', 'text=a', 'put text=a', text = new, other=True",
        "recipe mini with start=1, batch_size=3: unknown key 'batch_size'",
        *(f"{file}: no such file" for file in ("data/text=a.txt", "start=2020/x.txt", "text=1", "workers")),
    ):
        assert as_typed(kept) == kept


def test_what_messages_advise_to_pass_can_be_typed() -> None:
    advised = set[str]()
    for path in Path(elmo.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                advised |= set(re.findall(r"`\w+=", node.value))
    advised -= {"`vocab="}  # of the interface of AllenNLP
    assert len(advised) > 10
    assert {as_typed(f"{name}...`") for name in advised} <= set().union(*options_of(cli).values())


def test_layer_and_layers_each_suggest_the_other(run: Callable[..., Done]) -> None:
    """`--layers` may name several layers, `--layer` gives one vector for each token; each verb has at most one."""
    has = {verb: options & {"--layer", "--layers"} for verb, options in options_of(cli).items()}
    takers = {verb: option for verb, (option,) in ((verb, found) for verb, found in has.items() if found)}
    assert takers == {
        "elmo embed": "--layers",
        **dict.fromkeys(["elmo index", "elmo neighbors", "elmo types"], "--layer"),
    }
    for verb, option in takers.items():
        other = "--layer" if option == "--layers" else "--layers"
        code, _, err = run(*verb.split()[1:], "model", other, "top")
        assert code == 2
        assert re.search(rf"No such option '{other}'\. \(?Did you mean .*'{option}'", err), err


@pytest.mark.parametrize(
    "raised",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("NCCL error: unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"),
        lambda: torch.empty(1 << 52),
    ],
)
def test_running_out_of_memory_gives_one_sentence(
    raised: Exception | Callable[[], object], run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU allocator of torch has no exception class of its own, so a real allocation shows its current message."""
    command = Mock(side_effect=raised if isinstance(raised, Exception) else lambda **_: raised())
    monkeypatch.setattr(cli, "main", command)
    done = run("info", "en")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "elmo: out of memory; try smaller batches, or a device with more memory\n"


def test_other_runtime_errors_keep_their_traceback(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "main", Mock(side_effect=RuntimeError("no memory of it")))
    with pytest.raises(RuntimeError, match="no memory of it"):
        run("info", "en")


@pytest.mark.parametrize("as_json", [False, True])
def test_stdout_has_only_the_table_of_sentences(as_json: bool, run: Callable[..., Done], tmp_path: Path) -> None:
    """The table that `--sentences` prints is for other programs, so the result goes to stderr."""
    save_native(make_model(softmax=True), tmp_path / "model")
    (tmp_path / "text.txt").write_text("a new play\n\na play\n")
    options = ["--json"] if as_json else []
    done = run("perplexity", "model", "text.txt", "--sentences", *options)
    assert done.returncode == 0, done.stderr
    assert [line.split("\t")[-1] for line in done.stdout.splitlines()] == ["a new play", "a play"]
    assert ('"perplexity": ' if as_json else "perplexity ") in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("state", ["carry", "zero"])
def test_perplexity_agrees_with_the_scores_of_the_sentences(
    state: Literal["carry", "zero"], run: Callable[..., Done], tmp_path: Path
) -> None:
    """With one sentence per batch, all columns of the table and the figures of the whole text agree."""
    model = make_model(softmax=True)
    save_native(model, tmp_path / "model")
    sentences = [["a", "new", "play"], ["a", "play"], ["new", "unheard"]]
    (tmp_path / "text.txt").write_text("".join(f"{' '.join(sentence)}\n" for sentence in sentences))
    options = ["--state", state, "--batch-size", "1", "--sentences", "--json"]
    done = run("perplexity", "model", "text.txt", *options)
    wanted = [*score_sentences(model, sentences, state, 1)]
    for line, score in zip(done.stdout.splitlines(), wanted, strict=True):
        length, num_oov, *numbers, text = line.split("\t")
        assert (int(length), int(num_oov), text) == (len(score.tokens), score.num_oov, " ".join(score.tokens))
        assert [*map(float, numbers)] == pytest.approx([*score.log_probabilities, score.perplexity], abs=1e-3)
    whole, figures = Perplexity.of(wanted), json.loads(done.stderr.splitlines()[-1])
    assert (figures["perplexity"], figures["num_tokens"]) == (pytest.approx(whole.mean, rel=1e-5), 7)
    directions = [figures[f"{name}_perplexity"] for name in ("forward", "backward")]
    assert directions == pytest.approx([*whole.directions], rel=1e-5)
    assert (figures["num_sentences"], figures["oov_rate"]) == (3, whole.oov_rate)
    others = Perplexity.of(score_sentences(model, sentences, "zero" if state == "carry" else "carry", 1))
    assert others.mean != pytest.approx(whole.mean, rel=1e-4), "the test would prove nothing: states make no difference"


@pytest.mark.parametrize(
    ("verb", "arguments", "told"),
    [
        ("embed", ["text.txt", "out.npz"], "2 sentences, 6 tokens"),
        ("index", ["text.txt", "out.index"], "2 sentences, 6 tokens"),
        ("warm", ["text.txt"], "2 sentences, 6 tokens"),
        ("warm", ["text.txt", "--json"], '"lowercase": true'),
        ("types", ["text.txt", "out.txt", "--min-count", "1"], "vectors of 5 words, 12 wide, from 6 tokens"),
        ("perplexity", ["text.txt", "--sentences"], "\thé came .\n"),
        ("neighbors", ["text.txt", "--word", "CAME", "--in", "She CAME."], "1 nearest of 1 use in 2 sentences"),
        ("finetune", ["out", "text.txt", "--min-count", "1", "--new-softmax", "--set", "training.max_steps=1"], ""),
    ],
)
def test_reading_options_work_in_every_command(
    verb: str, arguments: list[str], told: str, run: Callable[..., Done], tmp_path: Path
) -> None:
    """Every command that reads text can read a paragraph of raw text in an old encoding, and in lower case."""
    if verb == "index":
        pytest.importorskip("faiss", reason="needs pip install 'elmo-torch[analysis]'")
    save_native(make_model(softmax=True), tmp_path / "model")
    (tmp_path / "text.txt").write_bytes("Hé came. She WENT.\n".encode("latin-1"))
    reading = ["--tokenizer", "ptb", "--text", "paragraphs", "--encoding", "latin-1", "--lowercase"]
    done = run(verb, "model", *arguments, *reading)
    assert done.returncode == 0, done.stderr
    assert told in done.stdout
    if verb == "finetune":
        words = (tmp_path / "out" / "vocabulary.txt").read_text(encoding="utf-8").split()
        assert sorted(words[3:]) == [".", "came", "hé", "she", "went"]
    if verb == "types":
        lines = (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines()
        assert sorted(line.split()[0] for line in lines[1:]) == [".", "came", "hé", "she", "went"]


@pytest.mark.parametrize(
    ("arguments", "done"),
    [
        (["perplexity", "many", "text.txt"], "scored"),
        (["finetune", "many", "out", "text.txt", "--new-softmax"], "trained"),
        (["warm", "many", "text.txt"], "given a warm state"),
        (["convert", "many", "out"], "converted"),
        (["pretrain", "corpus", "out", "--recipe", "tiny", "--from", "many"], "trained"),
    ],
)
def test_commands_that_models_with_word_lists_cannot_run(
    arguments: list[str], done: str, run: Callable[..., Done], tmp_path: Path
) -> None:
    make_many_langs.make(tmp_path / "many")
    (tmp_path / "text.txt").write_text("a new play\n")
    prepare([str(tmp_path / "text.txt")], tmp_path / "corpus", min_count=1, workers=1)
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(f"elmo: an ELMoForManyLangs model cannot be {done}: it has word lists of its own (")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["embed"], ["info", "x", "--no-such-option"], ["nothing"]])
def test_wrong_usage_exits_with_2(arguments: list[str], run: Callable[..., Done]) -> None:
    assert run(*arguments).returncode == 2


def test_a_missing_extra_is_named(run: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("a new play\n" * 50)
    prepare([str(tmp_path / "text.txt")], tmp_path / "corpus", min_count=1, workers=1)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    done = run("pretrain", "corpus", "run", "--tensorboard")
    assert done.returncode == 2
    assert done.stderr == (
        "elmo: writing for TensorBoard needs tensorboard, which is not installed: "
        "pip install 'elmo-torch[tensorboard]'\n"
    )
    assert not (tmp_path / "run").exists()


def test_pipes_are_utf8_whatever_the_locale(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text("Łódź B-LOC\nist O\n", encoding="utf-8")
    ascii_locale = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "elmo", "task", "text", "ner", str(tmp_path / "train.conll")]
    done = subprocess.run(command, env=ascii_locale, capture_output=True, check=False)
    assert done.stdout.decode() == "Łódź ist\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs names of files that are not UTF-8")
@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # most locales are strict, C.UTF-8 is not
def test_a_name_that_is_not_utf8_is_printed_unchanged(errors: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("A b .\n" * 3)
    command = [os.fsencode(sys.executable), b"-m", b"elmo", b"prepare", b"corp\xe9", b"text"]
    environment = os.environ | {"PYTHONIOENCODING": f"utf-8:{errors}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.stdout.startswith(b"corp\xe9: 9 tokens"), done.stderr
    command = [*command[:4], b"oth\xe9r", b"text", b"--json"]  # JSON is UTF-8
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert json.loads(done.stdout.decode())["folder"] == "oth\udce9r", done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes stdin")
def test_closed_standard_input_gives_one_sentence(tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m elmo prepare corpus - <&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (2, "elmo: -: there is no standard input; name a file\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_no_half_finished_corpus(name: str, tmp_path: Path) -> None:
    """SIGTERM asks a program to end, and SIGHUP comes from a closed terminal. The text has no end of its own."""
    command = [sys.executable, "-m", "elmo", "prepare", "corpus", "-"]
    # `yes` never stops: if a signal comes just before a command waits for text, it is noticed only with the next text.
    with started("yes", "A b .") as text, started(*command, cwd=tmp_path, stdin=text.stdout) as process:
        wait_until(lambda: bool(list(tmp_path.glob(".corpus.*/parts"))), process)
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=60)
    assert process.returncode == 128 + getattr(signal, name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_a_signal_that_comes_where_exceptions_are_ignored_ends_the_command(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callbacks of weak references are such a place, and Python's own modules have them, too."""

    def ignore_signal(**_: object) -> None:
        thing = type("Thing", (), {})()
        reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
        del thing
        assert reference() is None
        time.sleep(60)

    done = run_by_default_signals(run, ignore_signal, monkeypatch)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_a_signal_whose_exit_a_library_drops_ends_the_command(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy does that where it looks at the argument of `tofile`."""

    def drop_exit(**_: object) -> None:
        for _ in range(3):
            with contextlib.suppress(SystemExit):
                signal.raise_signal(signal.SIGTERM)
        time.sleep(60)

    assert run_by_default_signals(run, drop_exit, monkeypatch).returncode == 128 + signal.SIGTERM


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_a_signal_does_not_interrupt_the_cleanup(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is stopped may get SIGTERM and SIGHUP, and the command sends itself the signal again."""
    steps: list[str] = []

    def clean_up_slowly(**_: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGHUP)
            steps.append("begun")
            try:
                raise OSError
            except OSError:
                signal.raise_signal(signal.SIGTERM)
                time.sleep(0.3)
            steps.append("done")

    done = run_by_default_signals(run, clean_up_slowly, monkeypatch)
    time.sleep(0.3)  # nothing is sent any more
    assert (done.returncode, done.stderr, steps) == (128 + signal.SIGTERM, "", ["begun", "done"])


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
@pytest.mark.parametrize("ends", ["while it is being sent", "before"])
def test_no_signal_is_sent_again_after_the_end_of_a_command(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    is_being_sent, late, kill = threading.Event(), [], os.kill

    def kill_slowly(process: int, number: int) -> None:
        is_being_sent.set()
        time.sleep(0.2)
        kill(process, number)

    def drop_exit_and_end(**_: object) -> None:
        with contextlib.suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        assert ends == "before" or is_being_sent.wait(60)

    monkeypatch.setattr(os, "kill", kill_slowly)
    before = signal.signal(signal.SIGTERM, lambda number, _: late.append(number))
    try:
        assert run_by_default_signals(run, drop_exit_and_end, monkeypatch).returncode == 0
        time.sleep(0.5)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert late == []


def run_by_default_signals(
    run: Callable[..., Done], command: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Done:
    """Run a function as the command, in a process in which signals have their default action, before it and after."""
    monkeypatch.setattr(cli, "main", command)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        done = run("info", "en")
        assert [signal.getsignal(number) for number in before] == [signal.SIG_DFL] * len(before)
        return done
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_under_nohup_a_command_outlives_its_terminal(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    """`nohup` starts a program that ignores SIGHUP."""
    monkeypatch.setattr(cli, "main", lambda **_: signal.raise_signal(signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run("info", "en").returncode == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes stderr")
def test_a_command_needs_no_stderr(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("A b .\n" * 3)
    command = f"'{sys.executable}' -m elmo prepare corpus text --json 2>&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["num_tokens"] == 9


def test_convert_refuses_an_existing_target(run: Callable[..., Done], tmp_path: Path) -> None:
    make_bilm_hdf5.make(tmp_path / "model")
    done = run("convert", "model", "model")
    assert (done.returncode, done.stderr) == (2, "elmo: model: exists already; choose a new folder\n")
    (tmp_path / "file").touch()
    done = run("convert", "model", "file/made")
    assert done.returncode == 2
    assert done.stderr == "elmo: file: is not a folder; name one, or a path where there is nothing yet\n"


@pytest.fixture
def convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Return a function that runs `elmo convert` in a folder with two models: `one` has a softmax, `other` has none."""
    formats.save_native(make_model(softmax=True), tmp_path / "one")
    formats.save_native(make_model("three_layers"), tmp_path / "other")
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["convert", *arguments])
        return result.exit_code, str(result.exception or result.output)

    return invoke


@pytest.mark.parametrize("options", [[], ["--to", "bilm"], ["--storage", "float16"]])
def test_the_same_convert_again_has_nothing_to_do(
    options: list[str], convert: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    """Files that people add or edit, such as the card, are left as they are. Another model is refused."""
    assert convert("one", "made", *options)[0] == 0
    (tmp_path / "made" / "README.md").write_text("my words")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "made").iterdir()}
    code, output = convert("one", "made", *options)
    assert code == 0
    assert output.endswith("; it was already there\n")
    code, output = convert("other", "made", *options)
    assert (code != 0, output) == (True, "made: exists already and holds something else; choose a new folder")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "made").iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "one", "other"]


def test_convert_cleans_up_after_a_kill(convert: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """A killed process leaves only a hidden folder, which the next command removes."""
    (tmp_path / ".made.unfinished" / "model").mkdir(parents=True)
    (tmp_path / ".made.unfinished" / "model" / ".softmax.safetensors.partial").write_text("half")
    (tmp_path / ".made.unfinished" / "model" / "softmax.safetensors").write_text("of another model")
    assert convert("other", "made")[0] == 0
    assert formats.load(tmp_path / "made").softmax is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "one", "other"]


def test_two_processes_do_not_convert_to_one_folder(convert: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    with unfinished_folder(tmp_path / ".made.unfinished", tmp_path / "made", lambda: False):
        code, output = convert("one", "made")
    assert (code != 0, output) == (True, "made: another process is writing it; wait for that one, or end it")
    assert not (tmp_path / "made").exists()
