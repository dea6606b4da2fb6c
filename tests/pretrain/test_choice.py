"""By default the length of the text decides, one line says so, and a started run keeps its recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import RunMain
from elmo.pretrain.choice import choose_recipe
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.text.corpus import Corpus
from elmo.training.recipes import write_recipe


@pytest.mark.parametrize(
    ("num_tokens", "name", "wide"),
    [(44_044, "little", 64), (1_999_999, "little", 64), (3_000_000, "mini", 64), (100_000_000, "en", 192)],
)
def test_the_length_of_the_text_decides(num_tokens: int, name: str, wide: int, tmp_path: Path) -> None:
    recipe, line = choose_recipe(num_tokens, tmp_path / "run", {})
    named = load_pretraining_recipe(name)
    assert (recipe.char_cnn.num_filters, recipe.lstm.projection_dim) == (named.char_cnn.num_filters, wide)
    assert line.startswith(f"recipe {name}, chosen for {num_tokens:,} tokens")
    assert f"; {2 * wide} wide with " in line
    assert "\n" not in line
    _, line = choose_recipe(num_tokens, tmp_path / "run", {"bidirectional": False})
    assert f"; {wide} wide with " in line


@pytest.mark.parametrize(
    ("num_tokens", "end"),
    [
        (20_000_000, ", 1 epoch"),
        (500_000_000, ", 23,809 steps, which read 60,951,040 tokens"),
        (3_000_000, ", 10 epochs"),
    ],
)
def test_the_line_says_when_training_ends(num_tokens: int, end: str, tmp_path: Path) -> None:
    assert choose_recipe(num_tokens, tmp_path / "run", {})[1].endswith(end)


def test_an_epoch_predicts_the_ends_of_sentences_too(tmp_path: Path) -> None:
    """A limit of steps that all tokens would just keep within may still end the training."""
    settings = {"training.max_steps": 4_200, "training.n_epochs": 1, "training.batch_size": 10}
    for num_sentences, end in ((0, ", 1 epoch"), (100_000, ", 4,200 steps, which read 840,000 tokens")):
        _, line = choose_recipe(800_000, tmp_path / "run", settings, num_sentences=num_sentences)
        assert line.endswith(end)


def test_longer_texts_are_read_fewer_times(tmp_path: Path) -> None:
    """A longer text also never gets a smaller model than a shorter one."""
    recipes = [choose_recipe(10**n, tmp_path / "run", {})[0] for n in range(4, 10)]
    epochs, cells = [r.training.n_epochs for r in recipes], [r.lstm.dim for r in recipes]
    assert epochs == sorted(epochs, reverse=True)
    assert epochs[0] > epochs[-1]
    assert cells == sorted(cells)


def test_what_the_user_sets_wins(tmp_path: Path) -> None:
    recipe, line = choose_recipe(100_000, tmp_path / "run", {"training.n_epochs": 3, "lstm.projection_dim": 96})
    assert (recipe.training.n_epochs, recipe.lstm.projection_dim) == (3, 96)
    assert "; 192 wide" in line  # the width of both directions together, as everywhere else
    assert line.endswith(", 3 epochs")


def test_a_device_without_bf16_trains_in_float32(tmp_path: Path) -> None:
    """The recipe `en` has bf16, which takes ten times as long on a processor without instructions for it."""
    for gains, precision in ((True, "bf16"), (False, "float32")):
        recipe, line = choose_recipe(10**8, tmp_path / "run", {}, gains_by_bf16=gains)
        assert recipe.training.precision == precision
        assert f", {precision}, " in line
    recipe, _ = choose_recipe(10**8, tmp_path / "run", {"training.precision": "bf16"}, gains_by_bf16=False)
    assert recipe.training.precision == "bf16"


@pytest.mark.parametrize("gains", [True, False])
def test_the_command_asks_whether_the_device_gains_by_bf16(
    gains: bool, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """It does not change a recipe that the user names, but says what would be faster."""

    def choose(*_: object, num_sentences: int, gains_by_bf16: bool) -> tuple[Recipe, str]:
        assert num_sentences == corpus.num_sentences
        return load_pretraining_recipe("tiny", {"training.max_steps": 1}), f"gains: {gains_by_bf16}"

    monkeypatch.setattr("elmo.nn.precision.device_gains_by_bf16", lambda _: gains)
    monkeypatch.setattr("elmo.pretrain.choice.choose_recipe", choose)
    command = ["pretrain", str(corpus.folder), str(tmp_path / "chosen"), "--device", "cpu"]
    assert run_main(command)[2] == f"gains: {gains}\n"
    command = ["pretrain", str(corpus.folder), str(tmp_path / "named"), "--device", "cpu", "--recipe", "tiny"]
    command += ["--max-steps", "1", "--set", "training.precision=bf16"]
    said = "elmo: recipe tiny trains in bf16, for which this device has no fast instructions; pass --set training"
    for is_new in (True, False):
        code, _, err = run_main(command)
        assert code == 0
        assert err.startswith(said) == (is_new and not gains)


def test_a_start_needs_the_recipe_of_its_model(corpus: Corpus, tmp_path: Path, run_main: RunMain) -> None:
    """The length of the text says nothing about the sizes of the model."""
    command = ["pretrain", str(corpus.folder), str(tmp_path / "run"), "--from", "model"]
    code, _, err = run_main(command)
    assert code == 2
    assert err.startswith("elmo: --from: the recipe has to be the one that MODEL was trained with; name it")


def test_a_run_goes_on_with_its_own_recipe(tmp_path: Path) -> None:
    """A later version of the package may choose a different recipe for the same text."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    limits = {"training.max_minutes": 5, "training.max_steps": 3}
    write_recipe(tmp_path / "run" / "recipe.yaml", load_pretraining_recipe("tiny", limits))
    recipe, _ = choose_recipe(44_044, tmp_path / "run", {})
    assert recipe != load_pretraining_recipe("tiny"), "an attempt without a checkpoint may have failed by its settings"
    (tmp_path / "run" / "checkpoints" / "step-000000001.safetensors").touch()
    recipe, line = choose_recipe(44_044, tmp_path / "run", {"training.max_steps": 7})
    assert recipe == load_pretraining_recipe("tiny", {"training.max_steps": 7})
    own = tmp_path / "run" / "recipe.yaml"
    assert line == f"recipe {own}, with which the run was begun; 7 steps, which read 4,480 tokens"
    assert choose_recipe(44_044, tmp_path / "run", {})[0].training.max_steps is None, "only of the first start"
    recipe, line = choose_recipe(44_044, tmp_path / "run", {"training.max_minutes": 9})
    assert recipe.training.max_minutes == 9
    assert line.endswith("; 10 epochs, at most 9 minutes")


@pytest.mark.parametrize(("name", "limit"), [("mini", None), ("en", 23_809)])
def test_a_limit_of_steps_is_that_of_the_runs_own_recipe(name: str, limit: int | None, tmp_path: Path) -> None:
    """`mini` was the default for texts of every length, and `en` has a limit that `mini` doesn't have."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000000001.safetensors").touch()
    write_recipe(tmp_path / "recipe.yaml", load_pretraining_recipe(name, {"training.max_steps": 3}))
    recipe, _ = choose_recipe(500_000_000, tmp_path, {})
    assert recipe == load_pretraining_recipe(name)
    assert recipe.training.max_steps == limit


def test_the_command_says_what_it_chose_and_goes_on(corpus: Corpus, tmp_path: Path, run_main: RunMain) -> None:
    command = ["pretrain", str(corpus.folder), str(tmp_path / "run"), "--device", "cpu"]
    command += ["--set", "training.batch_size=4", "--set", "lstm.dim=16", "--set", "lstm.projection_dim=8"]
    for steps, said in ((1, f"recipe little, chosen for {corpus.num_tokens:,} "), (2, f"recipe {tmp_path}")):
        code, out, err = run_main([*command, "--max-steps", str(steps)])
        assert code == 0
        assert err.startswith(said)
        assert out.startswith(f"{tmp_path / 'run'}: {steps} of {steps} steps")
    code, out, _ = run_main([*command, "--max-steps", "9", "--max-minutes", "0.00001"])
    assert (code, out.split(",")[0]) == (0, f"{tmp_path / 'run'}: 2 steps")
    assert out.endswith("; training.max_minutes (1e-05) ended it\n")
