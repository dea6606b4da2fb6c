"""`elmo.Elmo` has the signature, shapes and masks of AllenNLP's class. The fixtures test its numbers."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
import make_many_langs
from elmo import formats
from elmo.errors import ElmoError
from make_allennlp import PARAMETERS
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, make
from oracle import Oracle, encode_sentence

SENTENCES = [["A", "new", "play", "opened", "."], ["Hi"], [], ["naïve", "日本語"]]


def test_arguments_mean_what_they_mean_in_allennlp() -> None:
    """Names, defaults and order are AllenNLP's, and arguments that it lacks can't be passed by position."""
    parameters = list(inspect.signature(elmo.Elmo.__init__).parameters.values())[1:]
    positional = {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    assert list(positional.items()) == list(PARAMETERS.items())
    assert list(inspect.signature(elmo.Elmo.forward).parameters) == ["self", "inputs", "word_inputs"]


def make_layer(tmp_path: Path, **options: object) -> tuple[elmo.Elmo, Oracle]:
    folder, published, weights = make(tmp_path / "model")
    layer = elmo.Elmo(str(folder / OPTIONS_FILE), str(folder / WEIGHTS_FILE), 2, **options)
    return layer, Oracle(weights, published)


def test_shapes_mask_and_numbers(tmp_path: Path) -> None:
    """The layer gives as many tensors as asked for, a bool mask, no boundaries, and the mean of the layers."""
    layer, oracle = make_layer(tmp_path, dropout=0.0)
    output = layer(elmo.batch_to_ids(SENTENCES))
    assert output["mask"].dtype == torch.bool
    assert output["mask"].sum(dim=1).tolist() == [5, 1, 0, 2]
    assert [tuple(x.shape) for x in output["elmo_representations"]] == [(4, 5, 12)] * 2
    for representation in output["elmo_representations"]:
        for row, sentence in enumerate(SENTENCES):
            wanted = oracle.row(encode_sentence(sentence))[0].mean(axis=0)[1:-1]
            found = representation[row].detach().numpy()
            np.testing.assert_allclose(found[: len(sentence)], wanted, atol=1e-5, rtol=0)
            assert not found[len(sentence) :].any()


def test_what_only_the_softmax_needs_is_not_read(tmp_path: Path) -> None:
    """A layer has no softmax, which may be larger than the biLM, and whose list of words may be wrong."""
    folder, _, _ = make(tmp_path / "model", "softmax")
    (folder / "vocab.txt").write_text("one\nword\n")
    with pytest.raises(ElmoError, match=r"vocab\.txt: has"):
        formats.load(folder)
    assert elmo.Elmo(folder / OPTIONS_FILE, folder / WEIGHTS_FILE, 1)(elmo.batch_to_ids(SENTENCES))


def test_boundaries_are_kept_when_asked(tmp_path: Path) -> None:
    layer, oracle = make_layer(tmp_path, dropout=0.0, keep_sentence_boundaries=True)
    output = layer(elmo.batch_to_ids(SENTENCES))
    assert output["mask"].sum(dim=1).tolist() == [7, 3, 2, 4]
    wanted = oracle.row(encode_sentence(SENTENCES[0]))[0].mean(axis=0)
    np.testing.assert_allclose(output["elmo_representations"][1][0].detach().numpy(), wanted, atol=1e-5, rtol=0)


def test_more_than_three_dimensions(tmp_path: Path) -> None:
    layer, _ = make_layer(tmp_path, dropout=0.0)
    ids = elmo.batch_to_ids(SENTENCES)
    output = layer(ids.reshape(2, 2, 5, 50))
    assert output["mask"].shape == (2, 2, 5)
    assert output["elmo_representations"][0].shape == (2, 2, 5, 12)
    flat = layer(ids)["elmo_representations"][0]
    torch.testing.assert_close(output["elmo_representations"][0].flatten(0, 1), flat, atol=1e-6, rtol=0)


def test_scalar_mix_parameters_freeze_gamma_too(tmp_path: Path) -> None:
    layer, _ = make_layer(tmp_path, scalar_mix_parameters=[0.0, 1.0, 2.0])
    assert not any(parameter.requires_grad for parameter in layer.parameters())


def test_a_wrong_number_of_scores_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"2 .*3 layers"):
        make_layer(tmp_path, scalar_mix_parameters=[0.0, 1.0])


@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_bilm_is_frozen_unless_asked(requires_grad: bool, tmp_path: Path) -> None:
    layer, _ = make_layer(tmp_path, requires_grad=requires_grad)
    layer(elmo.batch_to_ids(SENTENCES))["elmo_representations"][0].sum().backward()
    found = [parameter.grad is not None for parameter in layer.bilm.parameters()]
    assert all(found) if requires_grad else not any(found)


def test_goes_with_a_task_models_state_dict(tmp_path: Path) -> None:
    """The layer, with its biLM, can be saved and loaded alone and as a part of a larger model."""
    layer, _ = make_layer(tmp_path, dropout=0.0)
    with torch.no_grad():
        layer.mixes[0].gamma.fill_(3.0)
        layer.bilm.forward_lstm.layers[0].bias.add_(1.0)
    other, _ = make_layer(tmp_path, dropout=0.0)
    ids = elmo.batch_to_ids(SENTENCES)
    wanted = layer(ids)["elmo_representations"][0]
    assert not torch.equal(other(ids)["elmo_representations"][0], wanted)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(wanted, other(ids)["elmo_representations"][0])
    inner, _ = make_layer(tmp_path, dropout=0.0)
    task, again = (torch.nn.ModuleDict({"elmo": part, "tags": torch.nn.Linear(2, 2)}) for part in (layer, inner))
    again.load_state_dict(task.state_dict())
    assert torch.equal(wanted, inner(ids)["elmo_representations"][0])


def test_from_pretrained_takes_what_load_takes(tmp_path: Path) -> None:
    layer, _ = make_layer(tmp_path, dropout=0.0)
    formats.save_native(formats.load(tmp_path / "model"), tmp_path / "native")
    ids = elmo.batch_to_ids(SENTENCES)
    wanted = layer(ids)["elmo_representations"][0]
    for source in (tmp_path / "model", str(tmp_path / "native")):
        found = elmo.Elmo.from_pretrained(source, num_output_representations=2, dropout=0.0)
        assert isinstance(found, elmo.Elmo)
        # The numbers lie at other addresses in memory, so that sums may be computed in another order.
        torch.testing.assert_close(found(ids)["elmo_representations"][1], wanted, atol=1e-6, rtol=0)


# --- words known beforehand


VOCABULARY = ["@@PADDING@@", "A", "new", "play", "opened", ".", "Hi", "naïve", "日本語", "incomprehensible"]


def word_ids(sentences: list[list[str]]) -> torch.Tensor:
    longest = max(map(len, sentences))
    rows = [[VOCABULARY.index(word) for word in sentence] for sentence in sentences]
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


@pytest.mark.parametrize("variant", ["base", "short_words"])
def test_cached_words_give_the_vectors_of_their_characters(variant: str, tmp_path: Path) -> None:
    """Vectors agree up to float32 rounding, also if the model reads another number of characters per word."""
    folder, options, _ = make(tmp_path / "model", variant)
    layer = elmo.Elmo(folder / OPTIONS_FILE, folder / WEIGHTS_FILE, 1, dropout=0.0, vocab_to_cache=VOCABULARY)
    sentences = [*SENTENCES, ["incomprehensible"]]
    ids = elmo.batch_to_ids(sentences, options["char_cnn"]["max_characters_per_token"])
    wanted = layer(ids)
    for inputs in (ids, torch.zeros_like(ids)):  # the characters of known words are not read
        found = layer(inputs, word_ids(sentences))
        assert torch.equal(found["mask"], wanted["mask"])
        torch.testing.assert_close(found["elmo_representations"], wanted["elmo_representations"], atol=1e-6, rtol=0)


def test_an_empty_list_of_words_is_none(tmp_path: Path) -> None:
    layer, _ = make_layer(tmp_path, vocab_to_cache=[])
    assert layer.words is None


def test_from_pretrained_takes_words_too(tmp_path: Path) -> None:
    make(tmp_path / "model")
    layer = elmo.Elmo.from_pretrained(tmp_path / "model", dropout=0.0, vocab_to_cache=VOCABULARY)
    ids = elmo.batch_to_ids(SENTENCES)
    wanted = layer(ids)["elmo_representations"]
    for inputs in (ids, torch.zeros_like(ids)):
        found = layer(inputs, word_ids(SENTENCES))["elmo_representations"]
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


def test_words_of_a_model_with_a_lexicon(tmp_path: Path) -> None:
    """Models of ELMoForManyLangs don't read bytes, but the layer takes their words by number, as the engine does."""
    make_many_langs.make(tmp_path)
    layer = elmo.Elmo.from_pretrained(tmp_path, dropout=0.0, vocab_to_cache=VOCABULARY)
    [found] = layer(torch.empty(0), word_ids(SENTENCES))["elmo_representations"]
    for row, wanted in zip(found.detach(), elmo.load(tmp_path).embed(SENTENCES), strict=True):
        np.testing.assert_allclose(row[: len(wanted)], wanted, atol=2e-6, rtol=0)


def test_words_in_a_string_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match="expected a list of words, found a string"):
        make_layer(tmp_path, vocab_to_cache="play")


# --- an existing biLM


def test_module_shares_the_bilm(tmp_path: Path) -> None:
    """The biLM is shared with its `requires_grad`, but each layer has its own mixes and state."""
    layer, _ = make_layer(tmp_path, dropout=0.0, requires_grad=True)
    ids = elmo.batch_to_ids(SENTENCES)
    for module in (layer, layer.bilm):
        other = elmo.Elmo(None, None, 1, dropout=0.0, module=module, stateful=True)
        assert other.bilm is layer.bilm
        assert all(parameter.requires_grad for parameter in other.bilm.parameters())
        found = other(ids)["elmo_representations"]
        torch.testing.assert_close(found, layer(ids)["elmo_representations"][:1], atol=1e-6, rtol=0)
        assert len(other.mixes) == 1


def test_module_with_files_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    layer, _ = make_layer(tmp_path)
    other: Any = torch.nn.Linear(2, 2)
    for options, module, says in (
        ("options.json", layer, "replaces both files"),
        (None, other, "expected a biLM or an Elmo of this package, found Linear"),
    ):
        with pytest.raises(ElmoError, match=says):
            elmo.Elmo(options, None, 1, module=module)


# --- files that aren't there


def test_addresses_and_absent_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AllenNLP also fetched other kinds of addresses. Here, one sentence says what to do instead."""
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    folder, _, _ = make(tmp_path / "model")
    options, weights = folder / OPTIONS_FILE, folder / WEIGHTS_FILE
    for files, message in (
        (("http://127.0.0.1:9/options.json", weights), r"^http://127\.0\.0\.1:9/options\.json: can't be reached \("),
        ((options, "s3://bucket/weights.hdf5"), "`weight_file`: s3://bucket/weights.hdf5 is an address.*download it"),
        ((None, weights), "`options_file`: is not given; pass the paths or addresses"),
        ((options, None), "`weight_file`: is not given; pass the paths or addresses"),
        ((folder / "absent.json", weights), r"absent\.json: no such file"),
        ((options, folder / "absent.hdf5"), r"absent\.hdf5: no such file"),
    ):
        with pytest.raises(ElmoError, match=message):
            elmo.Elmo(*files, 1)


def test_home_directories_and_other_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AllenNLP expanded `~`, too. If an address would be taken for a path, one sentence says what to pass instead."""
    monkeypatch.setenv("HOME", str(tmp_path))
    make(tmp_path / "model")
    assert elmo.load("~/model").width == elmo.Elmo(f"~/model/{OPTIONS_FILE}", f"~/model/{WEIGHTS_FILE}", 1).output_dim
    for source, message in (
        ("~/absent", r"absent: no such file or folder$"),
        ("s3://bucket/model", r"^s3://bucket/model is an address .*; download it, and pass the path"),
        ("file:///data/model", r"^file:///data/model is an address that can't be fetched; pass the path alone$"),
        ("~nobody-of-this-name/model", r"there is no home directory for ~; pass the whole path$"),
    ):
        with pytest.raises(ElmoError, match=message):
            elmo.load(source)


def test_words_may_be_an_array(tmp_path: Path) -> None:
    layer, _ = make_layer(tmp_path, vocab_to_cache=np.array(VOCABULARY))
    assert layer.words is not None
    assert len(layer.words.characters) == len(VOCABULARY) + 2


def test_inputs_may_be_none_if_all_words_are_known(tmp_path: Path) -> None:
    layer, _ = make_layer(tmp_path, dropout=0.0, vocab_to_cache=VOCABULARY)
    numbers = word_ids(SENTENCES)
    wanted = layer(elmo.batch_to_ids(SENTENCES), numbers)["elmo_representations"]
    torch.testing.assert_close(layer(None, numbers)["elmo_representations"], wanted, atol=0, rtol=0)
    numbers[0, 0] = len(VOCABULARY)
    with pytest.raises(ElmoError, match=r"^`inputs`: are None, but not all of word_inputs are known words"):
        layer(None, numbers)


def test_batches_may_be_generators() -> None:
    batch = [["A", "play"], ["so"]]
    found = elmo.batch_to_ids(iter(sentence) for sentence in batch)
    assert torch.equal(found, elmo.batch_to_ids(batch))
