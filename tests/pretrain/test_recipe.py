"""Recipes are read and overridden, the package's own are as published, and errors name the key that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from elmo.errors import ElmoError
from elmo.pretrain.recipe import RECIPE_NAMES, PretrainingConfig, load_pretraining_recipe
from elmo.tasks import load_task_recipe
from elmo.tasks.recipe import ElmoConfig, TaskTrainingConfig, WordsConfig
from elmo.training.recipes import parse_override, write_recipe


@pytest.mark.parametrize("name", RECIPE_NAMES)
def test_recipes_of_the_package_are_read(name: str) -> None:
    assert load_pretraining_recipe(name).bilm.num_layers == 3


def test_paper_recipe_is_the_published_one() -> None:
    """The sources are Peters et al. 2018, sec. 3.4, and the settings of the published training code."""
    recipe = load_pretraining_recipe("paper")
    assert (recipe.lstm.dim, recipe.lstm.projection_dim, recipe.lstm.n_layers) == (4096, 512, 2)
    assert (recipe.lstm.cell_clip, recipe.lstm.proj_clip, recipe.lstm.use_skip_connections) == (3, 3, True)
    assert recipe.char_cnn.num_filters == 2048
    assert recipe.char_cnn.n_highway == 2
    training = recipe.training
    assert training.batch_size == 3 * 128, "128 streams on each of three GPUs (bilm-tf's bin/train_elmo.py)"
    assert (training.unroll_steps, training.n_negative_samples_batch) == (20, 8192)
    assert (training.learning_rate, training.initial_accumulator_value) == (0.2, 1.0)
    assert (training.all_clip_norm_val, training.dropout, training.n_epochs) == (10.0, 0.1, 10)


@pytest.mark.parametrize("name", RECIPE_NAMES)
def test_models_of_every_recipe_meet_a_state_of_zeros(name: str) -> None:
    """Sentences start from zeros by default when they are embedded, and a model that never saw zeros may fail there."""
    assert load_pretraining_recipe(name).training.fresh_starts


def test_written_recipe_reads_back(tmp_path: Path) -> None:
    recipe = load_pretraining_recipe("small", {"training.max_minutes": 1.5})
    write_recipe(tmp_path / "recipe.yaml", recipe)
    assert load_pretraining_recipe(str(tmp_path / "recipe.yaml")) == recipe


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "1.e-3", ".1e-2", "1.0e-3", "0.001"])
def test_small_numbers_may_be_written_as_people_do(text: str, tmp_path: Path) -> None:
    """PyYAML alone would read 1e-3 as text."""
    assert (
        load_pretraining_recipe("tiny", dict([parse_override(f"training.learning_rate={text}")])).training.learning_rate
        == 1e-3
    )
    write_recipe(tmp_path / "recipe.yaml", load_pretraining_recipe("tiny"))
    written = (tmp_path / "recipe.yaml").read_text()
    (tmp_path / "recipe.yaml").write_text(re.sub(r"(?<=learning_rate: )[\d.]+", text, written))
    assert load_pretraining_recipe(str(tmp_path / "recipe.yaml")).training.learning_rate == 1e-3


def test_words_that_yaml_takes_for_true_and_false_need_quotes() -> None:
    says = "labels: expected str, found True; in YAML, put yes, no, on, off, true and false into quotes to have them as"
    with pytest.raises(ElmoError, match=says):
        load_task_recipe("snli", None, dict([parse_override("labels=[yes, no]")]))
    quoted = load_task_recipe("snli", None, dict([parse_override("labels=['yes', 'no']")]))
    assert getattr(quoted, "labels", None) == ("yes", "no")


@pytest.mark.parametrize(
    ("name", "optimizer", "says"),
    [("tiny", "adamw", "is 0.2, for adagrad; choose one for adamw"), ("mini", "adagrad", "is 0.007, for muon; choose")],
)
def test_another_optimizer_needs_a_learning_rate_of_its_own(name: str, optimizer: str, says: str) -> None:
    """Good rates differ by orders of magnitude."""
    with pytest.raises(ElmoError, match=f"^training.learning_rate: the recipe's {says}"):
        load_pretraining_recipe(name, {"training.optimizer": optimizer})
    settings = {"training.optimizer": optimizer, "training.learning_rate": 0.01}
    assert load_pretraining_recipe(name, settings).training.optimizer == optimizer
    own = load_pretraining_recipe(name)
    assert load_pretraining_recipe(name, {"training.optimizer": own.training.optimizer}) == own


def test_overrides_are_yaml_values() -> None:
    settings = dict(map(parse_override, ["training.batch_size=64", "char_cnn.filters=[[1, 4]]", "lstm.cell_clip=null"]))
    recipe = load_pretraining_recipe("tiny", settings)
    assert recipe.training.batch_size == 64
    assert recipe.char_cnn.filters == ((1, 4),)
    assert recipe.lstm.cell_clip is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.batchsize=64", r"unknown key 'batchsize'; known keys are .*; did you mean batch_size\?"),
        ("batch_size=64", r"unknown key 'batch_size'; .*; did you mean training\.batch_size\?"),
        ("nothing=64", "unknown key 'nothing'; known keys are char_cnn, lstm, training, bidirectional$"),
        ("training.batch_size=many", "batch_size: expected int, found 'many'"),
        pytest.param(f"lstm.cell_clip=1{'0' * 400}", "cell_clip: a number of 401 digits is too large", id="long"),
        ("training.batch_size=0", "training.batch_size: 0 is not positive"),
        ("training.all_clip_norm_val=-1", "training.all_clip_norm_val: -1.0 is not positive"),
        ("training.evaluate_every_steps=0", "training.evaluate_every_steps: 0 is not positive"),
        ("training.average=1.5", r"training.average: 1.5 is not in \[0, 1\]"),
        ("training.patience=0", "training.patience: 0 is not positive"),
        ("training.max_minutes=0", "training.max_minutes: 0.0 is not positive"),
        ("training.n_epochs=.inf", "training.n_epochs: inf is not positive and finite"),
        ("training.learning_rate=.nan", "training.learning_rate: nan is not positive and finite"),
        ("training.seed=-1", "training.seed: -1 is not between 0 and 4294967295"),
        ("training.weight_decay=-0.1", "training.weight_decay: -0.1 is not zero or a positive number"),
        ("training.dropout=1", "training.dropout: 1.0 is not in"),
        ("training.word_dropout=1", "training.word_dropout: 1.0 is not in"),
        ("training.loss=hinge", "training.loss: 'hinge' is none of sampled, full, adaptive"),
        (
            "training.adaptive_cutoffs=[5]",
            "training.adaptive_cutoffs: is only for training.loss adaptive, not for sampled",
        ),
        ("lstm.projection_dim=256", "wider than the cell"),
        ("char_cnn.filters=[[1]]", "filters: expected a list of 2"),
        ("char_cnn.activation=gelu", "neither 'relu' nor 'tanh'"),
        ("nothing.at.all=1", "there is no 'nothing'"),
        ("char_cnn.filters.x=1", "char_cnn.filters has no keys"),
        ("char_cnn.activation.name=3", "char_cnn.activation has no keys"),
        ("char_cnn.max_characters_per_token=400", "max_characters_per_token: 400 is more than 255"),
        ("training={1: 2}", "training: unknown key '1'"),
        ("training={~: 2}", "training: unknown key 'None'"),
        ("training={a.b: 2}", "recipe key 'training.a.b': there is no 'a'"),
        ("training.batch_size", "expected KEY=VALUE"),
        ("training.batch_size=[", r"'\[' is not valid YAML"),
        ("training.batch_size=2024-13-01", "'2024-13-01' is not valid YAML"),
    ],
)
def test_a_wrong_key_or_value_is_named(override: str, message: str) -> None:
    with pytest.raises(ElmoError, match=message):
        load_pretraining_recipe("tiny", dict([parse_override(override)]))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: PretrainingConfig(batch_size=2.5), r"^training\.batch_size: expected int, found 2\.5$"),
        (lambda: PretrainingConfig(average="1"), r"^training\.average: expected float, found '1'$"),
        (lambda: PretrainingConfig(fresh_starts="no"), r"^training\.fresh_starts: expected bool, found 'no'$"),
        (lambda: TaskTrainingConfig(patience=0.5), r"^training\.patience: expected int, found 0\.5$"),
        (lambda: TaskTrainingConfig(decay=True), r"^training\.decay: expected float, found True$"),
        (lambda: ElmoConfig(gamma="no"), r"^elmo\.gamma: expected bool, found 'no'$"),
        (lambda: WordsConfig(dim=1.5), r"^words\.dim: expected int, found 1\.5$"),
    ],
)
def test_settings_that_a_program_makes_have_the_types_of_a_file(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make()


def test_the_recipe_is_not_blamed_for_a_wrong_setting(tmp_path: Path) -> None:
    """What is wrong in a recipe itself is said of it alone, whatever else is set."""
    settings = {"training.max_minutes": 0.0, "training.seed": 4}
    with pytest.raises(ElmoError) as error:
        load_pretraining_recipe("mini", settings)
    said = "recipe mini with training.max_minutes=0.0, training.seed=4: training.max_minutes: 0.0 is not positive"
    assert str(error.value).startswith(said)
    with pytest.raises(ElmoError, match=r"^recipe tiny with training\.batch_size='many': training: batch_size: "):
        load_pretraining_recipe("tiny", {"training.batch_size": "many"})
    write_recipe(mine := tmp_path / "mine.yaml", load_pretraining_recipe("tiny"))
    mine.write_text(mine.read_text().replace("batch_size: 32", "batch_size: many"))
    with pytest.raises(ElmoError, match=r"mine\.yaml: training: batch_size: expected int, found 'many'"):
        load_pretraining_recipe(str(mine), {"training.seed": 4})
    mine.write_text("- a list\n")
    with pytest.raises(ElmoError, match=r"^\S+mine\.yaml: expected a mapping of keys, found list$"):
        load_pretraining_recipe(str(mine), {"training.seed": 4})


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("huge", None, "recipe huge: is neither a file nor one of paper, small, en, mini, little, tiny"),
        ("/dev/zero", None, "recipe /dev/zero: is neither a file nor one of"),
        ("mine.yaml", b"# caf\xe9\n", r"mine\.yaml: is not UTF-8 text"),
        ("mine.yaml", b"lstm: {dim: 3", r"mine\.yaml: is not valid YAML"),
    ],
)
def test_what_is_no_recipe_is_refused(
    name: str, content: bytes | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(ElmoError, match=says):
        load_pretraining_recipe(name)


def test_recipes_without_end_are_refused(tmp_path: Path) -> None:
    """A huge file is not read. Of a value that expands to billions of others, only the beginning is shown."""
    path = tmp_path / "recipe.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # holes take no room on the disk
    with pytest.raises(ElmoError, match=r"recipe\.yaml: is too large for a recipe"):
        load_pretraining_recipe(str(path))
    lists = "".join(f"  - &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]\n" for level in range(1, 12))
    path.write_text(f"lstm:\n  - &l0 [a]\n{lists}char_cnn:\n  embedding:\n    dim: *l11\n", encoding="utf-8")
    with pytest.raises(ElmoError, match=r"recipe\.yaml: char_cnn: embedding: dim: expected int, found") as caught:
        load_pretraining_recipe(str(path))
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("text", ["[" * 700 + "]" * 700, '{"a":' * 700 + "1" + "}" * 700, "- " * 700 + "1"])
def test_endless_nesting_is_one_sentence(text: str, tmp_path: Path) -> None:
    path = str(tmp_path / "deep.yaml")
    Path(path).write_text(text)
    in_a_file = r"deep\.yaml: is nested too deeply; a recipe is a mapping of a few keys$"
    for read, says in (
        (lambda: load_pretraining_recipe(path), in_a_file),
        (lambda: load_task_recipe("ner", path), in_a_file),
        (lambda: parse_override(f"lstm.dim={text}"), r"^--set lstm\.dim: the value is nested too deeply for a recipe$"),
    ):
        with pytest.raises(ElmoError, match=says):
            read()
