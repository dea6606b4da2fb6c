from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import elmo
from bridge import WORDS, assert_equal, make_model
from elmo import formats
from elmo.config import BiLMConfig, TextConfig
from elmo.embed import Embedder
from elmo.errors import ElmoError
from elmo.formats import Model, native
from elmo.formats.card import model_card, without_head
from elmo.formats.native import Storage, save_warm_state
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.lstm import LSTMState
from elmo.nn.precision import TORCH_TYPES
from elmo.nn.scalar_mix import ScalarMix
from elmo.nn.softmax import AdaptiveSoftmax, Softmax
from elmo.schema import from_mapping
from elmo.targets import alone_in
from elmo.text.vocabulary import Vocabulary
from make_bilm_hdf5 import CHANGES
from refusing import assert_refused

Change = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]

WIDER = {
    "char_cnn": {"embedding": {"dim": 4}, "filters": [[1, 4], [2, 8]], "n_highway": 1},
    "lstm": {"dim": 20, "projection_dim": 16},
}


@pytest.mark.parametrize("variant", CHANGES)
def test_what_is_saved_is_loaded_bit_by_bit(variant: str, tmp_path: Path) -> None:
    """A model is equal to the bit when it is saved and loaded, directly or by way of the published format."""
    model = make_model(variant, softmax=True)
    formats.save_native(model, tmp_path / "native")
    formats.save_bilm(model, tmp_path / "bilm")
    formats.save_native(formats.load(tmp_path / "bilm"), tmp_path / "round")
    for folder in ("native", "bilm", "round"):
        found = formats.load(tmp_path / folder)
        assert found.config == model.config
        assert_equal(found.bilm, model.bilm)
        assert_equal(found.softmax, model.softmax)
        assert found.vocabulary is not None
        assert found.vocabulary.words == tuple(WORDS)


@pytest.mark.parametrize("save", [formats.save_native, formats.save_bilm])
def test_a_folder_may_be_a_string_and_only_models_are_saved(save: Callable[..., None], tmp_path: Path) -> None:
    save(make_model(), str(tmp_path / "model"))
    embedder = elmo.load(tmp_path / "model")
    with pytest.raises(ElmoError, match=r"`model`: expected what elmo\.formats\.load returns, found Embedder"):
        save(embedder, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("cutoffs", [[1], [4], [2, 9]])
def test_an_adaptive_softmax_is_loaded_as_one(cutoffs: list[int], tmp_path: Path) -> None:
    """Only the shapes tell its cutoffs. Width 16 is as narrow as two clusters allow."""
    bilm = BiLM(from_mapping(BiLMConfig, WIDER, "here"))
    model = Model(bilm, AdaptiveSoftmax(len(WORDS), 16, cutoffs), Vocabulary(WORDS))
    formats.save_native(model, tmp_path)
    found = formats.load(tmp_path)
    assert isinstance(found.softmax, AdaptiveSoftmax)
    assert found.softmax.cutoffs == [*cutoffs, len(WORDS)]
    assert_equal(found.softmax, model.softmax)
    assert f"an adaptive softmax over {len(WORDS)} words" in (tmp_path / "README.md").read_text()


def test_the_published_format_has_no_place_for_an_adaptive_softmax(tmp_path: Path) -> None:
    """The biLM is written with a warning, but neither the softmax nor its words."""
    model = make_model()
    model = Model(model.bilm, AdaptiveSoftmax(len(WORDS), model.config.lstm.projection_dim, [4]), Vocabulary(WORDS))
    with pytest.warns(UserWarning, match="no place for an adaptive softmax; it is left out"):
        formats.save_bilm(model, tmp_path)
    found = formats.load(tmp_path)
    assert_equal(found.bilm, model.bilm)
    assert found.softmax is None
    assert found.vocabulary is None
    assert not (tmp_path / "vocab.txt").exists()


@pytest.mark.parametrize("rows", [0, 1, None])
def test_shapes_that_fit_no_adaptive_softmax_are_refused(rows: int | None, tmp_path: Path) -> None:
    """A head must score its clusters and at least one word; None makes it a single number."""
    model = make_model()
    softmax = AdaptiveSoftmax(len(WORDS), model.config.lstm.projection_dim, [4])
    formats.save_native(Model(model.bilm, softmax, Vocabulary(WORDS)), tmp_path)
    tensors = {name: tensor.detach() for name, tensor in softmax.state_dict().items()}
    head = torch.ones(()) if rows is None else tensors["head.weight"][:rows].clone()
    save_file(tensors | {"head.weight": head}, tmp_path / "softmax.safetensors")
    shape = re.escape(str(tuple(head.shape)))
    with pytest.raises(ElmoError, match=rf"softmax\.safetensors: 'head\.weight' has shape {shape}, which fits no"):
        formats.load(tmp_path)


def make_warm_state(model: Model) -> BiLMState:
    torch.manual_seed(1)
    return tuple(LSTMState(*map(torch.rand_like, direction)) for direction in model.bilm.initial_state(1))


@pytest.mark.parametrize("variant", ["base", "one_direction", "three_layers", "no_projection"])
def test_a_warm_state_is_kept_bit_by_bit(variant: str, tmp_path: Path) -> None:
    """A warm state may be saved with its model, added to an existing model folder, or converted."""
    model = make_model(variant)
    model.warm_state = make_warm_state(model)
    formats.save_native(model, tmp_path / "together")
    formats.save_native(make_model(variant), tmp_path / "later")
    save_warm_state(model.warm_state, tmp_path / "later", model.bilm)
    formats.save_native(formats.load(tmp_path / "later"), tmp_path / "converted")
    for folder in ("together", "later", "converted"):
        found = formats.load(tmp_path / folder).warm_state
        assert found is not None
        assert len(found) == len(model.warm_state)
        for direction, wanted in zip(found, model.warm_state, strict=True):
            assert torch.equal(direction.hidden, wanted.hidden)
            assert torch.equal(direction.cell, wanted.cell)
    assert [path for path in (tmp_path / "later").iterdir() if path.name.startswith(".")] == []


def test_saving_a_model_removes_the_warm_state_of_an_older_one(tmp_path: Path) -> None:
    """The warm state in the folder belongs to weights that are no longer there."""
    model = make_model()
    save_warm_state(make_warm_state(model), tmp_path, model.bilm)
    formats.save_native(model, tmp_path)
    assert formats.load(tmp_path).warm_state is None


def test_the_published_format_has_no_place_for_a_warm_state(tmp_path: Path) -> None:
    model = make_model()
    model.warm_state = make_warm_state(model)
    with pytest.warns(UserWarning, match="no place for a warm state; it is left out"):
        formats.save_bilm(model, tmp_path)


def test_how_text_was_cut_survives_the_published_format(tmp_path: Path) -> None:
    model = make_model()
    for text in (TextConfig("ptb", "paragraphs", lowercase=True, language="en", oov_rate=0.1), None):
        model.text = text
        formats.save_bilm(model, tmp_path)
        assert formats.load(tmp_path).text == text


@pytest.mark.parametrize(("value", "says"), [("a", None), ({"text": "lines"}, "text: text: 'lines' is not one of")])
def test_options_of_others_may_have_the_key_text(tmp_path: Path, value: object, says: str | None) -> None:
    formats.save_bilm(make_model(), tmp_path)
    options = json.loads((tmp_path / "options.json").read_text())
    (tmp_path / "options.json").write_text(json.dumps(options | {"text": value}))
    if says is None:
        assert formats.load(tmp_path).text is None
    else:
        with pytest.raises(ElmoError, match=f"options.json: {says}"):
            formats.load(tmp_path)


def _without(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name != "backward.cell"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_without, "tensor 'backward.cell' is missing"),
        (lambda tensors: tensors | {"forward.hidden": torch.zeros(2, 7)}, "tensor 'forward.hidden': has shape (2, 7)"),
        (lambda tensors: tensors | {"forward.cell": torch.zeros(3, 12)}, "tensor 'forward.cell': has shape (3, 12)"),
        (lambda tensors: tensors | {"forward.cell": torch.full((2, 12), float("nan"))}, "contains nan"),
        (lambda tensors: tensors | {"sideways.cell": torch.zeros(2, 12)}, "'sideways.cell' fits nothing"),
    ],
)
def test_a_warm_state_that_fits_no_model_is_refused(change: Change, says: str, tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path)
    save_warm_state(make_warm_state(make_model()), tmp_path, make_model().bilm)
    path = tmp_path / "warm.safetensors"
    save_file(change(load_file(path)), path)
    assert_refused(tmp_path, "warm.safetensors: ", says)


def test_a_softmax_without_its_bias_is_refused(tmp_path: Path) -> None:
    formats.save_native(make_model(softmax=True), tmp_path)
    path = tmp_path / "softmax.safetensors"
    save_file({"weight": load_file(path)["weight"]}, path)
    assert_refused(tmp_path, "softmax.safetensors: ", "'bias' is missing")


def test_a_cut_off_warm_state_is_refused(tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path)
    save_warm_state(make_warm_state(make_model()), tmp_path, make_model().bilm)
    path = tmp_path / "warm.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    assert_refused(tmp_path, "warm.safetensors: not a complete safetensors file")


def test_a_model_without_softmax(tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    found = formats.load(tmp_path)
    assert found.softmax is None
    assert found.vocabulary is None


def test_saving_over_an_older_model_leaves_nothing_of_it(tmp_path: Path) -> None:
    """If the softmax of the older model stayed, it would be taken for that of the new one."""
    formats.save_native(make_model(softmax=True), tmp_path)
    formats.save_native(make_model("three_layers"), tmp_path)
    found = formats.load(tmp_path)
    assert found.config.lstm.n_layers == 3
    assert found.softmax is None


def test_the_card_holds_sizes_and_figures(tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path, {"perplexity": "39.7"}, {"language": "cs"})
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| perplexity | 39.7 |" in card
    assert "\nlanguage: cs\n---\n" in card


def test_the_card_goes_with_the_model(tmp_path: Path) -> None:
    """Measured figures are not lost when a model is loaded and saved, but new ones replace them."""
    formats.save_native(make_model(), tmp_path / "first", {"perplexity": "39.7"})
    formats.save_native(formats.load(tmp_path / "first"), tmp_path / "second")
    assert (tmp_path / "second" / "README.md").read_bytes() == (tmp_path / "first" / "README.md").read_bytes()
    formats.save_native(formats.load(tmp_path / "first"), tmp_path / "second", {"perplexity": "38.1"})
    assert "39.7" not in (tmp_path / "second" / "README.md").read_text(encoding="utf-8")


def test_a_damaged_card_does_not_stop_a_model(tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path)
    (tmp_path / "README.md").write_bytes(b"\xff\xfe card")
    assert (formats.load(tmp_path).card or "").endswith(" card")


def test_a_loaded_model_can_be_saved_over_itself(tmp_path: Path) -> None:
    """The tensors of a loaded model must not be views of the file that is being replaced."""
    model = make_model(softmax=True)
    formats.save_native(model, tmp_path)
    formats.save_native(formats.load(tmp_path), tmp_path)
    assert_equal(formats.load(tmp_path).bilm, model.bilm)


@pytest.mark.parametrize("save", [formats.save_native, formats.save_bilm])
def test_tied_or_transposed_memory_is_saved(save: Callable[..., None], tmp_path: Path) -> None:
    """Parameters need not be contiguous in memory, and two of them may be the same."""
    model = make_model()
    weight = model.bilm.forward_lstm.layers[0].weight_ih
    weight.data = weight.data.t().contiguous().t()
    model.bilm.backward_lstm.layers[0].weight_ih = weight
    save(model, tmp_path)
    found = formats.load(tmp_path).bilm
    assert_equal(found, model.bilm)
    assert torch.equal(found.backward_lstm.layers[0].weight_ih, weight)


@pytest.mark.parametrize(("storage", "bits"), [("float16", 11), ("bf16", 8)])
def test_weights_stored_in_half_are_float32_again_when_read(storage: Storage, bits: int, tmp_path: Path) -> None:
    """The numbers are rounded only once, to within half a unit in the last of `bits` binary digits."""
    model = make_model(softmax=True)
    formats.save_native(model, tmp_path / "half", storage=storage)
    found = formats.load(tmp_path / "half")
    for ours, theirs in ((found.bilm, model.bilm), (found.softmax, model.softmax)):
        assert ours is not None
        assert theirs is not None
        for name, tensor in theirs.state_dict().items():
            read = ours.state_dict()[name]
            assert read.dtype == torch.float32
            assert torch.equal(read, tensor.to(TORCH_TYPES[storage]).float())
            assert (read - tensor).abs().max() <= tensor.abs().max() * 2**-bits
    formats.save_native(found, tmp_path / "again", storage=storage)
    for name in ("model.safetensors", "softmax.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "half" / name).read_bytes()


def test_half_storage_takes_half_the_space(tmp_path: Path) -> None:
    """The header has the same length in both files, and the warm state, a few numbers, stays in float32."""
    model = make_model(softmax=True)
    model.warm_state = make_warm_state(model)
    formats.save_native(model, tmp_path / "full")
    formats.save_native(model, tmp_path / "half", storage="float16")
    num_weights = sum(weight.numel() for weight in model.bilm.state_dict().values())
    full, half = (tmp_path / name / "model.safetensors" for name in ("full", "half"))
    assert abs(full.stat().st_size - half.stat().st_size - 2 * num_weights) < 64
    assert load_file(tmp_path / "half" / "warm.safetensors")["forward.cell"].dtype == torch.float32


def test_weights_too_large_for_float16_are_refused(tmp_path: Path) -> None:
    model = make_model()
    model.bilm.forward_lstm.layers[0].bias.data[0] = 1e5
    with pytest.raises(ElmoError, match=r"'forward_lstm.layers.0.bias' has numbers too large for float16"):
        formats.save_native(model, tmp_path / "half", storage="float16")
    assert not (tmp_path / "half").exists()
    formats.save_native(model, tmp_path / "half", storage="bf16")
    assert formats.load(tmp_path / "half").bilm.forward_lstm.layers[0].bias[0] == torch.tensor(1e5).bfloat16()


@pytest.mark.parametrize("storage", ["bfloat16", "float64", None])
def test_an_unknown_storage_is_refused(storage: Any, tmp_path: Path) -> None:
    """Anything but the three names was float16 without a word, even a type that keeps more."""
    with pytest.raises(ElmoError, match=r"`storage`: .* is none of float32, float16, bf16"):
        formats.save_native(make_model(), tmp_path / "half", storage=storage)
    assert not (tmp_path / "half").exists()


@pytest.mark.parametrize("storage", ["float16", "bf16"])
def test_weights_that_are_not_finite_are_not_rounded(storage: Storage, tmp_path: Path) -> None:
    """The NaN that GPUs compute has all its lower bits set. Rounded like a number, it would become 0."""
    model = make_model()
    model.bilm.forward_lstm.layers[0].bias.data.view(torch.int32)[0] = 0x7FFFFFFF
    with pytest.raises(ElmoError, match=r"'forward_lstm.layers.0.bias' has numbers that are not finite"):
        formats.save_native(model, tmp_path / "half", storage=storage)
    assert not (tmp_path / "half").exists()


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("softmax.safetensors", "model.safetensors"),
        ("mixes.safetensors", "model.safetensors"),
        ("config.json", "model.safetensors"),
        ("vocabulary.txt", "softmax.safetensors"),
    ],
)
def test_files_of_two_models_are_no_model(name: str, owner: str, tmp_path: Path) -> None:
    """A kill between two renames can leave such a folder, and so can a copy that was cut short."""
    save_two_models(tmp_path)
    shutil.copy(tmp_path / "other" / name, tmp_path / "one" / name)
    assert_refused(tmp_path / "one", f"{name}: belongs to another model than {owner}", "run the command")


@pytest.mark.parametrize("scales", [{}, {"gamma": torch.tensor(1.0)}], ids=["no scales", "a single number"])
def test_mixes_without_a_scale_for_each_are_refused(scales: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_two_models(tmp_path)
    path = tmp_path / "one" / "mixes.safetensors"
    save_file({name: tensor for name, tensor in load_file(path).items() if name != "gamma"} | scales, path)
    assert_refused(tmp_path / "one", "mixes.safetensors: tensor 'gamma'")


def save_two_models(folder: Path) -> None:
    """Save two models of the same shape, in the folders "one" and "other"."""
    for number, name in enumerate(("one", "other")):
        bilm = BiLM(from_mapping(BiLMConfig, WIDER | {"lstm": WIDER["lstm"] | {"cell_clip": 3.0 + number}}, "here"))
        torch.nn.init.constant_(bilm.forward_lstm.layers[0].bias, number)  # pyright: ignore
        words = [*WORDS[:3], *(f"{word}{number}" for word in WORDS[3:])]
        model = Model(bilm, Softmax(len(words), bilm.config.lstm.projection_dim), Vocabulary(words))
        model.mixes = [ScalarMix(model.config.num_layers)]
        formats.save_native(model, folder / name)


def test_a_model_that_is_replaced_while_it_is_loaded_is_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training saves its model every few minutes, and others may load it at any moment."""
    save_two_models(tmp_path)
    read_arrays = native.read_arrays

    def replace_all(path: Path) -> object:
        found = read_arrays(path)
        monkeypatch.setattr(native, "read_arrays", read_arrays)
        for file in (tmp_path / "other").iterdir():
            file.replace(tmp_path / "one" / file.name)
        return found

    monkeypatch.setattr(native, "read_arrays", replace_all)
    model = formats.load(tmp_path / "one")
    assert model.config.lstm.cell_clip == 4.0
    assert model.vocabulary is not None
    assert model.vocabulary.words[3].endswith("1")


def test_a_vocabulary_of_other_words_is_no_part_of_a_model_of_words(tmp_path: Path) -> None:
    """Words in another order would get the vectors of one another."""
    values = {"char_cnn": None, "n_tokens_vocab": len(WORDS), "lstm": WIDER["lstm"]}
    bilm = BiLM(from_mapping(BiLMConfig, values, "here"))
    formats.save_native(Model(bilm, None, Vocabulary(WORDS)), tmp_path)
    assert formats.load(tmp_path).vocabulary is not None
    Vocabulary([*WORDS[:3], *reversed(WORDS[3:])]).write(tmp_path / "vocabulary.txt")
    assert_refused(tmp_path, "vocabulary.txt: belongs to another model than model.safetensors", "run the command")


def test_folders_of_earlier_versions_record_no_configuration_and_no_words(tmp_path: Path) -> None:
    model = make_model(softmax=True)
    formats.save_native(model, tmp_path)
    for name in ("model.safetensors", "softmax.safetensors"):
        save_file(load_file(tmp_path / name), tmp_path / name)  # without our metadata
    found = formats.load(tmp_path)
    assert_equal(found.bilm, model.bilm)
    assert found.vocabulary is not None
    assert found.vocabulary.words == tuple(WORDS)


def test_how_the_text_was_cut_may_be_corrected(tmp_path: Path) -> None:
    """The checksum of the configuration is that of the sizes alone."""
    formats.save_native(make_model(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"text": {"tokenizer": "ptb"}}))
    assert formats.load(tmp_path).text == TextConfig("ptb")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weights_in_memory_of_another_type_are_stored_as_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    model = make_model(softmax=True)
    assert model.softmax is not None
    model.bilm.to(dtype)
    model.softmax.to(dtype)
    formats.save_native(model, tmp_path)
    for name in ("model.safetensors", "softmax.safetensors"):
        assert {tensor.dtype for tensor in load_file(tmp_path / name).values()} == {torch.float32}


def test_rounded_weights_that_are_saved_again_are_the_same_model(tmp_path: Path) -> None:
    """The checksum that ties the files together is that of the weights as they are once loaded."""
    model = make_model(softmax=True)
    formats.save_native(model, tmp_path / "half", storage="bf16")
    formats.save_native(formats.load(tmp_path / "half"), tmp_path / "again")
    shutil.copy(tmp_path / "half" / "softmax.safetensors", tmp_path / "again" / "softmax.safetensors")
    assert formats.load(tmp_path / "again").softmax is not None


def test_a_warm_state_of_other_weights_is_left_out(tmp_path: Path) -> None:
    """The model may have been trained further since. Vectors that would start from the state are refused."""
    model = make_model()
    formats.save_native(model, tmp_path)
    other = make_model()
    torch.nn.init.normal_(other.bilm.forward_lstm.layers[0].bias)  # pyright: ignore
    save_warm_state(make_warm_state(other), tmp_path, other.bilm)
    assert formats.load(tmp_path).warm_state is None
    with pytest.raises(ElmoError, match="no warm state, or one that belongs to other weights"):
        elmo.load(tmp_path).embed([["play"]], state="warm")


def test_a_warm_state_changes_no_vectors_but_its_own() -> None:
    """Files of vectors that were started before the model had a warm state still belong to it."""
    model = make_model()
    before = Embedder(model)
    model.warm_state = make_warm_state(model)
    after = Embedder(model)
    assert before.fingerprint == before.warm_fingerprint == after.fingerprint != after.warm_fingerprint


def test_one_process_at_a_time_saves_a_layer(tmp_path: Path) -> None:
    layer = elmo.Elmo(None, None, 1, module=make_model().bilm)
    (tmp_path / "model").mkdir()
    with alone_in(tmp_path / "model"), pytest.raises(ElmoError, match="another process is writing it"):
        layer.save_pretrained(tmp_path / "model")
    layer.save_pretrained(tmp_path / "model")


def test_figures_are_read_from_json_and_never_from_the_card(tmp_path: Path) -> None:
    figures = {"trained for": "3 steps", "its files": "a | b"}
    formats.save_native(make_model(), tmp_path / "model", figures)
    (tmp_path / "model" / "README.md").write_text("| trained for | 9 steps |\n")
    model = formats.load(tmp_path / "model")
    assert model.figures == figures
    formats.save_native(model, tmp_path / "copy")
    assert formats.load(tmp_path / "copy").figures == figures
    (tmp_path / "model" / "training.json").write_text('{"figures": {"trained for": 3}}')
    assert_refused(tmp_path / "model", "training.json: key 'figures' must map names to strings", "remove the file")


@pytest.mark.parametrize("with_card", [True, False])
def test_figures_that_could_not_be_read_again_are_refused(with_card: bool, tmp_path: Path) -> None:
    """A number among them made a folder that `load` refuses, in the place of a model that it read."""
    figures: Any = {"perplexity": 39.7}
    with pytest.raises(ElmoError, match=r"`figures`: 'perplexity': expected a string, found float"):
        formats.save_native(make_model(), tmp_path / "new", figures, with_card=with_card)
    assert not (tmp_path / "new").exists()
    formats.save_native(make_model(), tmp_path / "model", {"perplexity": "39.7"})
    model = formats.load(tmp_path / "model")
    model.figures = figures
    with pytest.raises(ElmoError, match=r"`figures`: 'perplexity': expected a string"):
        formats.save_native(model, tmp_path / "model", with_card=with_card)
    assert formats.load(tmp_path / "model").figures == {"perplexity": "39.7"}


def test_a_new_card_has_the_figures_that_the_model_keeps(tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path / "model", {"perplexity": "39.7"})
    (tmp_path / "model" / "README.md").unlink()
    formats.save_native(formats.load(tmp_path / "model"), tmp_path / "copy")
    assert "| perplexity | 39.7 |" in (tmp_path / "copy" / "README.md").read_text(encoding="utf-8")


def test_a_card_tells_its_figures_and_takes_sections() -> None:
    figures = {"training text": "68 tokens", "trained on": "a laptop, 2 threads"}
    card = model_card(make_model(), figures, {"license": "apache-2.0"}, sections={"Limits": "Old text."}, source="en")
    assert "| training text | 68 tokens |\n| trained on | a laptop, 2 threads |\n" in card
    assert "| training |" not in model_card(make_model(), {})
    assert 'elmo.load("en")' in card
    assert "\n## Limits\n\nOld text.\n\nArchitecture: " in card
    assert without_head(card).startswith("# ELMo biLM")
    assert without_head("No head.\n---\nA rule.") == "No head.\n---\nA rule."
    assert without_head("---\na: b\n---\nOne.\n---\nTwo.\n---\nThree.") == "One.\n---\nTwo.\n---\nThree."


def with_all_parts() -> Model:
    """Make a model that is saved with all the files that a model can have, except token vectors."""
    model = make_model(softmax=True)
    model.mixes, model.warm_state = [ScalarMix(model.config.num_layers)], model.bilm.initial_state(1)
    model.figures = {"perplexity": "39.7"}
    return model


def test_saving_over_a_model_removes_all_that_it_had(tmp_path: Path) -> None:
    formats.save_native(with_all_parts(), tmp_path)
    formats.save_native(make_model("three_layers"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert formats.load(tmp_path).figures == {}


def test_a_new_folder_is_a_model_only_when_all_parts_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a kill could leave a model that has lost its softmax, and nobody would notice."""
    names: list[str] = []
    replace = Path.replace

    def name(path: Path, target: Path) -> Path:
        names.append(target.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", name)
    formats.save_native(with_all_parts(), tmp_path / "new")
    parts = {"model.safetensors", "softmax.safetensors", "mixes.safetensors", "warm.safetensors", "vocabulary.txt"}
    assert {*names[: names.index("config.json")]} == parts
