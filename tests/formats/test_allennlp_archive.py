"""The ELMo in an archive of an AllenNLP task gives the oracle's numbers and mixes layers as the task learned to."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
from bridge import assert_equal, layers_of
from elmo import formats
from elmo.errors import ElmoError
from make_allennlp import MIXES, PREFIX, make_archive, make_config, make_state_dict
from make_bilm_hdf5 import BASE, CHANGES, make_options, make_weights
from oracle import Oracle, encode_sentence, scalar_mix
from refusing import Evil, assert_refused

SENTENCE = ["A", "play", "on", "naïve", "日本語", "."]
VARIANTS = [name for name in CHANGES if name not in ("no_projection", "one_direction", "softmax", "no_char_projection")]
"""All variants that AllenNLP knows: its models always have both directions and both projections."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_with_its_options_equals_the_oracle(variant: str, tmp_path: Path) -> None:
    options = make_options(variant)
    weights = make_weights(options)
    state, num_mixes = make_state_dict(weights), 2
    if options["lstm"]["n_layers"] != 2:  # the generator's mixes are for three layers
        state, num_mixes = {name: tensor for name, tensor in state.items() if "scalar_mix" not in name}, 0
    model = formats.load(make_archive(tmp_path / "model.tar.gz", state, make_config(), options))
    wanted = Oracle(weights, options).row(encode_sentence(SENTENCE, options["char_cnn"]["max_characters_per_token"]))[0]
    found = layers_of(model, SENTENCE)
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)
    assert len(model.mixes) == num_mixes
    assert all(parameter.requires_grad for parameter in model.bilm.parameters())


def test_a_training_folder_says_which_of_its_files_to_load(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(make_config()))
    assert_refused(folder, "is a training folder of AllenNLP; it has neither model.tar.gz nor best.th")
    state = make_state_dict(make_weights(make_options()))
    torch.save(state, folder / "best.th")
    assert_refused(folder, "training folder of AllenNLP; copy its best.th to weights.th")
    make_archive(folder / "model.tar.gz", state, make_config())
    assert_refused(folder, "training folder of AllenNLP; load its model.tar.gz instead")
    wanted = formats.load(folder / "model.tar.gz")
    (folder / "best.th").rename(folder / "weights.th")
    found = formats.load(folder)
    np.testing.assert_array_equal(layers_of(found, SENTENCE), layers_of(wanted, SENTENCE))
    assert [mix.gamma.item() for mix in found.mixes] == [mix.gamma.item() for mix in wanted.mixes]


def test_without_options_sizes_come_from_the_tensors(tmp_path: Path) -> None:
    """Clips, the activation and the residual connection are those of every model AllenNLP published."""
    options = make_options()
    options["lstm"].update(cell_clip=3, proj_clip=3)
    weights = make_weights(options)
    model = formats.load(make_archive(tmp_path / "model.tar.gz", make_state_dict(weights), make_config()))
    wanted = Oracle(weights, options).row(encode_sentence(SENTENCE))[0]
    np.testing.assert_allclose(layers_of(model, SENTENCE), wanted, atol=1e-5, rtol=0)
    assert model.config.char_cnn.filters == ((1, 3), (2, 4), (3, 5))
    assert (model.config.lstm.cell_clip, model.config.lstm.proj_clip) == (3.0, 3.0)
    assert model.origin == (
        f"archive: model.tar.gz holds AllenNLP: weights.th holds an Elmo under '{PREFIX}', 2 scalar mixes, "
        "sizes from the tensors, with published clips"
    )


@pytest.mark.parametrize("options_file", [None, 7, "options.json", "https://example.org/elmo_nb_options.json"])
def test_options_that_are_missing_and_may_not_be_as_published(options_file: object, tmp_path: Path) -> None:
    config = {"elmo": {} if options_file is None else {"options_file": options_file}}
    path = make_archive(tmp_path / "model.tar.gz", make_state_dict(make_weights(make_options())), config)
    with pytest.warns(UserWarning, match=r"^weights\.th: the options of its ELMo are not in the folder, so published"):
        formats.load(path)


@pytest.mark.parametrize("prefix", ["", "elmo.", "_text_field_embedder.token_embedder_elmo._elmo."])
def test_an_elmo_anywhere_in_the_task_model(prefix: str, tmp_path: Path) -> None:
    state = make_state_dict(make_weights(make_options()), prefix)
    assert f"under '{prefix or '.'}'" in formats.load(make_archive(tmp_path / "m.tar.gz", state, {}, BASE)).origin


def test_the_unpacked_folder_and_its_files(tmp_path: Path) -> None:
    path = make_archive(tmp_path / "m.tar.gz", make_state_dict(make_weights(make_options())), make_config(), BASE)
    folder = path.parent / f"{path.name}-files"
    for source in (folder, folder / "weights.th", folder / "config.json"):
        assert formats.load(source).origin.startswith("AllenNLP: weights.th holds an Elmo")


def test_a_plain_tar_that_ends_with_weights(tmp_path: Path) -> None:
    """The weights are a zip, whose end is near that of the archive."""
    state = make_state_dict(make_weights(make_options()))
    packed = make_archive(tmp_path / "m.tar.gz", state, make_config(), BASE)
    path = tmp_path / "model.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("config.json", "fta", "weights.th"):
            archive.add(tmp_path / "m.tar.gz-files" / name, name)
    found, wanted = (layers_of(formats.load(source), SENTENCE) for source in (path, packed))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("by_native", [False, True])
def test_the_mixes_that_the_task_learned(layer_norm: bool, by_native: bool, tmp_path: Path) -> None:
    """`from_pretrained` starts from these mixes, and native folders keep them."""
    weights = make_weights(make_options())
    source = make_archive(tmp_path / "m.tar.gz", make_state_dict(weights), make_config(layer_norm), BASE)
    if by_native:
        formats.save_native(formats.load(source), tmp_path / "native")
        source = tmp_path / "native"
    layer = elmo.Elmo.from_pretrained(source, 2, dropout=0.0)
    found = layer(elmo.batch_to_ids([SENTENCE]))["elmo_representations"]
    layers = Oracle(weights, BASE).row(encode_sentence(SENTENCE))[0][:, None]
    mask = np.ones(layers.shape[1:3], bool) if layer_norm else None
    for representation, (scores, gamma) in zip(found, MIXES, strict=True):
        wanted = scalar_mix(layers, np.array(scores), gamma, mask)[:, 1:-1]
        np.testing.assert_allclose(representation.detach().numpy(), wanted, atol=2e-5, rtol=0)
    fresh = elmo.Elmo.from_pretrained(source, 1, dropout=0.0, scalar_mix_parameters=[0.0, 0.0, 0.0])
    assert fresh.mixes[0].gamma.item() == 1
    for wanted in (False, True):
        assert elmo.Elmo.from_pretrained(source, 1, do_layer_norm=wanted).mixes[0].layer_norm == wanted


def test_bilm_hdf5_leaves_the_mixes_out_and_says_so(tmp_path: Path) -> None:
    state = make_state_dict(make_weights(make_options()))
    model = formats.load(make_archive(tmp_path / "m.tar.gz", state, make_config(), BASE))
    with pytest.warns(UserWarning, match="no place for scalar mixes"):
        formats.save_bilm(model, tmp_path / "bilm")
    np.testing.assert_array_equal(layers_of(formats.load(tmp_path / "bilm"), SENTENCE), layers_of(model, SENTENCE))


# --- what is refused


def refusal(tmp_path: Path, state: Any, options: object = BASE) -> str:
    with pytest.raises(ElmoError) as caught:
        formats.load(make_archive(tmp_path / "m.tar.gz", state, {}, options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_task_model_without_or_with_two_elmos(tmp_path: Path) -> None:
    weights = make_weights(make_options())
    (tmp_path / "two").mkdir()
    assert "expected one ELMo" in refusal(tmp_path, {"x": torch.zeros(3)})
    both = {**make_state_dict(weights, "a."), **make_state_dict(weights, "b.")}
    assert "found a., b." in refusal(tmp_path / "two", both)


@pytest.mark.parametrize("options", [BASE, None])
@pytest.mark.parametrize("name", sorted(make_state_dict(make_weights(make_options()), "")))
def test_a_missing_tensor(name: str, options: object, tmp_path: Path) -> None:
    state = make_state_dict(make_weights(make_options()))
    del state[PREFIX + name]
    if name.endswith("gamma"):  # without its gamma, a mix is not recognized
        assert len(formats.load(make_archive(tmp_path / "m.tar.gz", state, make_config(), options)).mixes) < 2
    else:
        assert "weights.th" in refusal(tmp_path, state, options)


@pytest.mark.parametrize("has_options", [False, True])
def test_a_projection_that_is_not_narrower_than_the_cell(has_options: bool, tmp_path: Path) -> None:
    """AllenNLP's cells are projected whatever their sizes, ours only to fewer dimensions; the sentence says so."""
    options = make_options("no_projection")
    state = make_state_dict(make_weights(options))
    dim = options["lstm"]["dim"]
    stack = next(name for name in state if "forward_layer_0" in name).partition("forward_layer_0")[0]
    for layer in ("forward_layer_0", "forward_layer_1", "backward_layer_0", "backward_layer_1"):
        state[f"{stack}{layer}.state_projection.weight"] = torch.eye(dim)
    message = refusal(tmp_path, state, options if has_options else None)
    assert f"state_projection.weight' has shape ({dim}, {dim})" in message
    assert "fewer dimensions" in message


def test_a_tensor_of_wrong_shape_or_without_sense(tmp_path: Path) -> None:
    for number, tensor in enumerate([torch.zeros(48, 7), torch.zeros(3), torch.full((48, 6), torch.nan)]):
        (tmp_path / str(number)).mkdir()
        state = make_state_dict(make_weights(make_options()))
        state[PREFIX + "_elmo_lstm._elmo_lstm.forward_layer_0.input_linearity.weight"] = tensor
        assert "forward_layer_0.input_linearity.weight'" in refusal(tmp_path / str(number), state)
    for name, gamma, says in (
        ("two", torch.ones(2), " is missing or is not a single number"),
        ("nan", torch.tensor([torch.nan]), ": contains a number that is not finite"),
    ):
        (tmp_path / name).mkdir()
        state = {**make_state_dict(make_weights(make_options())), PREFIX + "scalar_mix_0.gamma": gamma}
        assert f"tensor 'scalar_mix_0.gamma'{says}" in refusal(tmp_path / name, state)


@pytest.mark.parametrize("how", ["in the dictionary", "plain pickle", "old format"])
def test_pickles_with_code_are_never_run(how: str, tmp_path: Path) -> None:
    evil = Evil(tmp_path / "evil")
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "weights.th"
    if how == "plain pickle":
        path.write_bytes(pickle.dumps({"x": evil}))
    else:
        state = {**make_state_dict(make_weights(make_options())), "x": evil}
        torch.save(state, path, _use_new_zipfile_serialization=how != "old format")
    with pytest.raises(ElmoError, match=r"weights\.th: refused, because it contains objects or code"):
        formats.load(tmp_path / "m")
    assert not (tmp_path / "evil").exists()
    if how == "plain pickle":
        pickle.loads(path.read_bytes())  # to check the test: loaded in this way, the pickle does run its code
        assert (tmp_path / "evil").exists()


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95])
def test_truncated_weights(old: bool, share: float, tmp_path: Path) -> None:
    path = tmp_path / "weights.th"
    torch.save(make_state_dict(make_weights(make_options())), path, _use_new_zipfile_serialization=not old)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(ElmoError, match=r"weights\.th"):
        formats.load(tmp_path)


@pytest.mark.parametrize("kind", ["archive", "weights"])
def test_a_flipped_bit_never_changes_the_vectors(kind: str, tmp_path: Path) -> None:
    """Both kinds of files have checksums, so that a flip is refused unless it hits bytes that are never read."""
    source = make_archive(tmp_path / "m.tar.gz", make_state_dict(make_weights(make_options())), make_config(), BASE)
    folder = source.parent / f"{source.name}-files"
    path = source if kind == "archive" else folder / "weights.th"
    data, wanted, numbers, refused = path.read_bytes(), formats.load(path), random.Random(5), 0
    for _ in range(100):
        damaged = bytearray(data)
        damaged[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
        path.write_bytes(damaged)
        try:
            found = formats.load(path)
        except ElmoError:
            refused += 1
        else:
            assert_equal(found.bilm, wanted.bilm)
            for mix, other in zip(found.mixes, wanted.mixes, strict=True):
                assert_equal(mix, other)
    assert refused > 30


def test_what_follows_the_files_of_an_archive_is_bounded(tmp_path: Path) -> None:
    """Bytes after the last file of an archive are read only because the checksum needs them."""
    path = tmp_path / "m.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(bytes(1 << 20))
    with pytest.raises(ElmoError, match=r"m\.tar\.gz: unpacks to more"):
        formats.load(path)


def test_files_of_older_versions_of_torch(tmp_path: Path) -> None:
    """Most archives were written before torch packed its files as zip."""
    weights = make_weights(make_options())
    torch.save(make_state_dict(weights), tmp_path / "weights.th", _use_new_zipfile_serialization=False)
    (tmp_path / "config.json").write_text(json.dumps(make_config()), encoding="utf-8")
    assert formats.load(tmp_path).config.lstm.dim == 12


def test_a_tensor_that_repeats_one_number_without_end(tmp_path: Path) -> None:
    """A view of four bytes can claim any shape."""
    state = make_state_dict(make_weights(make_options()))
    state[PREFIX + "_elmo_lstm._token_embedder._char_embedding_weights"] = torch.zeros(1, 1).expand(1 << 20, 1 << 20)
    message = refusal(tmp_path, state, None)
    assert "can't hold" in message or "shape" in message


def test_weights_of_another_kind(tmp_path: Path) -> None:
    torch.save([torch.zeros(3)], tmp_path / "weights.th")
    with pytest.raises(ElmoError, match="contains a list, not a state dict"):
        formats.load(tmp_path)
