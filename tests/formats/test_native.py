from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import save_file

from bridge import WORDS, assert_equal, make_model
from elmo import formats
from elmo.config import BiLMConfig, from_mapping
from elmo.errors import ElmoError
from elmo.formats import Model
from elmo.nn.adaptive import AdaptiveSoftmax
from elmo.nn.bilm import BiLM
from elmo.text.vocabulary import Vocabulary
from make_bilm_hdf5 import CHANGES

WIDER = {
    "char_cnn": {"embedding": {"dim": 4}, "filters": [[1, 4], [2, 8]], "n_highway": 1},
    "lstm": {"dim": 20, "projection_dim": 16},
}


@pytest.mark.parametrize("variant", CHANGES)
def test_what_is_saved_is_loaded_bit_by_bit(variant: str, tmp_path: Path) -> None:
    """Straight, and by way of the published format."""
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


@pytest.mark.parametrize("cutoffs", [[1], [4], [2, 9]])
def test_an_adaptive_softmax_is_loaded_as_one(cutoffs: list[int], tmp_path: Path) -> None:
    """Nothing but the shapes tells its cutoffs. Width 16, as narrow as two clusters allow."""
    bilm = BiLM(from_mapping(BiLMConfig, WIDER, "here"))
    model = Model(bilm, AdaptiveSoftmax(len(WORDS), 16, cutoffs), Vocabulary(WORDS))
    formats.save_native(model, tmp_path)
    found = formats.load(tmp_path)
    assert isinstance(found.softmax, AdaptiveSoftmax)
    assert found.softmax.cutoffs == [*cutoffs, len(WORDS)]
    assert_equal(found.softmax, model.softmax)
    assert f"an adaptive softmax over {len(WORDS)} words" in (tmp_path / "README.md").read_text()


def test_the_published_format_has_no_place_for_an_adaptive_softmax(tmp_path: Path) -> None:
    """The biLM goes there, with a warning; neither softmax nor words."""
    model = make_model()
    model = Model(model.bilm, AdaptiveSoftmax(len(WORDS), model.config.lstm.projection_dim, [4]), Vocabulary(WORDS))
    with pytest.warns(UserWarning, match="no place for an adaptive softmax; it is left out"):
        formats.save_bilm(model, tmp_path)
    found = formats.load(tmp_path)
    assert_equal(found.bilm, model.bilm)
    assert found.softmax is None
    assert found.vocabulary is None
    assert not (tmp_path / "vocab.txt").exists()


@pytest.mark.parametrize("rows", [0, 1])
def test_shapes_that_fit_no_adaptive_softmax_are_refused(rows: int, tmp_path: Path) -> None:
    """A head must score its clusters, and a word of its own at least."""
    model = make_model()
    softmax = AdaptiveSoftmax(len(WORDS), model.config.lstm.projection_dim, [4])
    formats.save_native(Model(model.bilm, softmax, Vocabulary(WORDS)), tmp_path)
    tensors = {name: tensor.detach() for name, tensor in softmax.state_dict().items()}
    save_file(tensors | {"head.weight": tensors["head.weight"][:rows].clone()}, tmp_path / "softmax.safetensors")
    with pytest.raises(ElmoError, match=rf"softmax\.safetensors: {rows} rows of 'head\.weight' fit no adaptive"):
        formats.load(tmp_path)


def test_a_model_without_softmax(tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    found = formats.load(tmp_path)
    assert found.softmax is None
    assert found.vocabulary is None


def test_saving_over_an_older_model_leaves_nothing_of_it(tmp_path: Path) -> None:
    """A softmax of the model before would be taken for the new one's."""
    formats.save_native(make_model(softmax=True), tmp_path)
    formats.save_native(make_model("three_layers"), tmp_path)
    found = formats.load(tmp_path)
    assert found.config.lstm.n_layers == 3
    assert found.softmax is None


def test_the_card_holds_sizes_and_figures(tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path, {"perplexity": "39.7"})
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| perplexity | 39.7 |" in card


def test_a_loaded_model_can_be_saved_over_itself(tmp_path: Path) -> None:
    """Its tensors must not be views of the file that is being replaced."""
    model = make_model(softmax=True)
    formats.save_native(model, tmp_path)
    formats.save_native(formats.load(tmp_path), tmp_path)
    assert_equal(formats.load(tmp_path).bilm, model.bilm)


@pytest.mark.parametrize("save", [formats.save_native, formats.save_bilm])
def test_tied_or_transposed_memory_is_saved(save: object, tmp_path: Path) -> None:
    """Parameters need not be contiguous in memory."""
    model = make_model()
    weight = model.bilm.forward_lstm.layers[0].weight_ih
    weight.data = weight.data.t().contiguous().t()
    assert callable(save)
    save(model, tmp_path)
    assert_equal(formats.load(tmp_path).bilm, model.bilm)
