"""The biLM that is read from a folder of ELMoForManyLangs gives the numbers of an oracle of its own."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import elmo
import make_nlpl
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats import Model
from elmo.integrations import allennlp
from make_bilm_hdf5 import Options, Weights
from make_many_langs import LETTERS, SETTINGS_FILE, SPECIAL, WORDS, make, many_letters
from oracle import Oracle
from refusing import Evil, assert_refused

SENTENCE = ["play", "naïve", "日本", "of", "\u3000", "filter", "zebra", "x" * 70, "p" * 48, "", "<bos>"]
"""Known and unknown words and letters, words of 48, 70 and 0 characters, and the sign of a boundary."""

VARIANTS = ["base", "tanh", "no_highway", "one_layer", "three_layers", "no_clips", "short_words"]


def token_vector(word: str, options: Options, parts: Weights, letters: list[str]) -> np.ndarray:
    """Compute the published vector of one word; the boundaries are `<bos>` and `<eos>`."""
    ids = {name: number for number, name in enumerate([*SPECIAL, *letters])}
    max_characters = options["char_cnn"]["max_characters_per_token"]
    if word not in ("<bos>", "<eos>"):
        word = word[: max_characters - 2]
    spelled = [ids[word]] if word in ("<bos>", "<eos>") else [ids.get(c, ids["<oov>"]) for c in word]
    row = [ids["<eow>"], *spelled, ids["<bow>"]]  # begin and end are swapped
    row += [ids["<pad>"]] * (max_characters - len(row))
    table = Oracle({**parts, "char_embed": parts["characters"]}, options)
    features = np.concatenate(
        [table.convolve(table.weights["char_embed"][row], k) for k in range(len(options["char_cnn"]["filters"]))]
    )
    for k in range(options["char_cnn"]["n_highway"]):
        features = table.highway(features, k)
    own = parts["words"][WORDS.index(word) if word in WORDS else 0]
    return np.concatenate([own, features]) @ parts["W"].T + parts["b"]


def oracle_layers(options: Options, parts: Weights, letters: list[str]) -> np.ndarray:
    """Compute all layers (L + 1, T + 2, D) of the sentence."""
    words = ["<bos>", *SENTENCE, "<eos>"]
    vectors = np.stack([token_vector(word, options, parts, letters) for word in words])
    oracle = Oracle(parts, options)
    runs = [oracle.run_direction(vectors, oracle.zero_state()[d], d)[0] for d in (0, 1)]
    return np.stack([np.concatenate(layer, axis=1) for layer in [[vectors] * 2, *zip(*runs, strict=True)]])


def layers_of(model: Model) -> np.ndarray:
    assert model.lexicon is not None
    ids = model.lexicon.encode(["<S>", *SENTENCE, "</S>"])
    with torch.inference_mode():
        layers, _ = model.bilm(torch.from_numpy(ids), torch.arange(len(ids))[None], torch.tensor([len(ids)]))
    return layers[:, 0].numpy()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_equals_the_oracle(variant: str, tmp_path: Path) -> None:
    options, parts = make(tmp_path, variant)
    options["lstm"]["use_skip_connections"] = True
    model = formats.load(tmp_path)
    np.testing.assert_allclose(layers_of(model), oracle_layers(options, parts, LETTERS), atol=1e-5, rtol=0)
    assert model.origin == (
        f"ELMoForManyLangs: encoder.pkl and token_embedder.pkl of 26 characters and 9 words, sizes from {SETTINGS_FILE}"
    )


def test_the_embedder_gives_the_same(tmp_path: Path) -> None:
    """`layers="all"` is their layer -2 and the default mean their layer -1. Boundaries are removed."""
    options, parts = make(tmp_path)
    wanted = oracle_layers(options, parts, LETTERS)[:, 1:-1]
    model = elmo.load(tmp_path)
    np.testing.assert_allclose(model.embed([SENTENCE], layers="all")[0], wanted, atol=1e-5, rtol=0)
    np.testing.assert_allclose(model.embed([["of"], SENTENCE])[1], wanted.mean(axis=0), atol=1e-5, rtol=0)


@pytest.mark.parametrize("count", [200, 235, 236, 300])
def test_more_and_fewer_characters_than_there_are_bytes(count: int, tmp_path: Path) -> None:
    """The counts lie around 261 rows, where our embedding has padding and theirs another character."""
    letters = many_letters(count)
    options, parts = make(tmp_path, letters=letters)
    sentence = [letters[i] + letters[i + 1] for i in range(len(letters) - 2)]
    model = formats.load(tmp_path)
    assert model.lexicon is not None
    with torch.inference_mode():
        found = model.bilm.char_encoder(torch.from_numpy(model.lexicon.encode(sentence))).numpy()
    wanted = np.stack([token_vector(word, options, parts, letters) for word in sentence])
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)


def test_a_model_of_characters_alone(tmp_path: Path) -> None:
    options, parts = make(tmp_path, word_dim=0)
    model = formats.load(tmp_path)
    np.testing.assert_allclose(layers_of(model), oracle_layers(options, parts, LETTERS), atol=1e-5, rtol=0)


@pytest.mark.parametrize("path", ["C:\\models\\" + SETTINGS_FILE, "configs/" + SETTINGS_FILE, SETTINGS_FILE])
def test_settings_of_another_machine_are_found_by_their_file_name(path: str, tmp_path: Path) -> None:
    make(tmp_path, "no_clips")
    (tmp_path / "config.json").write_text(json.dumps({"config_path": path}), encoding="utf-8")
    assert formats.load(tmp_path).config.lstm.cell_clip is None


def test_settings_elsewhere_on_this_machine_are_never_opened(tmp_path: Path) -> None:
    """The path is one of the publisher's machine; a file at this path here does not belong to the model."""
    make(tmp_path / "model")
    (tmp_path / "secret.json").write_text("not json", encoding="utf-8")
    for path in (str(tmp_path / "secret.json"), "../secret.json"):
        (tmp_path / "model" / "config.json").write_text(json.dumps({"config_path": path}), encoding="utf-8")
        with pytest.warns(UserWarning, match="secret.json', are not in the folder, so published ones are used"):
            assert "published clips" in formats.load(tmp_path / "model").origin


def test_settings_below_the_folder_come_first(tmp_path: Path) -> None:
    """The original opens the path from the folder of the model."""
    make(tmp_path, "no_clips")
    (tmp_path / "configs").mkdir()
    shutil.copy(tmp_path / SETTINGS_FILE, tmp_path / "configs" / "own.json")
    edit(tmp_path / "configs" / "own.json", encoder__cell_clip=0.7, token_embedder__activation="tanh")
    for path in ("configs/own.json", "configs\\own.json", "./configs/own.json"):
        (tmp_path / "config.json").write_text(json.dumps({"config_path": path}), encoding="utf-8")
        model = formats.load(tmp_path)
        assert model.origin.endswith("sizes from own.json")
        assert model.config.lstm.cell_clip == 0.7
        assert model.config.char_cnn is not None
        assert model.config.char_cnn.activation == "tanh"
    (tmp_path / "configs" / "own.json").rename(tmp_path / "configs" / "config.json")
    (tmp_path / "config.json").write_text('{"config_path": "configs/config.json"}', encoding="utf-8")
    assert formats.load(tmp_path).config.lstm.cell_clip == 0.7


def test_without_settings_sizes_come_from_the_tensors(tmp_path: Path) -> None:
    """Most published folders have no settings."""
    options, parts = make(tmp_path)
    (tmp_path / SETTINGS_FILE).unlink()
    model = formats.load(tmp_path)
    options["lstm"].update(cell_clip=3, proj_clip=3)
    np.testing.assert_allclose(layers_of(model), oracle_layers(options, parts, LETTERS), atol=1e-5, rtol=0)
    assert model.origin.endswith("sizes from the tensors, with published clips")


@pytest.mark.parametrize("inside", ["", "144/"])
def test_zipped_as_published(inside: str, tmp_path: Path) -> None:
    make(tmp_path / "144")
    path = make_nlpl.make_zip(tmp_path / "144.zip", tmp_path / "144", inside)
    np.testing.assert_array_equal(layers_of(formats.load(path)), layers_of(formats.load(tmp_path / "144")))


def test_either_file_of_weights_names_the_model(tmp_path: Path) -> None:
    make(tmp_path)
    for name in ("encoder.pkl", "token_embedder.pkl"):
        assert formats.load(tmp_path / name).origin.startswith("ELMoForManyLangs: encoder.pkl and token_embedder.pkl")


@pytest.mark.parametrize("save", [formats.save_native, formats.save_bilm])
def test_it_cannot_be_written_in_other_formats(save: object, tmp_path: Path) -> None:
    make(tmp_path / "model")
    assert callable(save)
    with pytest.raises(ElmoError, match="cannot be converted"):
        save(formats.load(tmp_path / "model"), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_ids_of_bytes_are_refused(tmp_path: Path) -> None:
    """Ids of bytes would be taken for other words, and the numbers would not show the mistake."""
    make(tmp_path)
    layer = elmo.Elmo.from_pretrained(tmp_path)
    with pytest.raises(ElmoError, match="reads ids from its own lexicon"):
        layer(elmo.batch_to_ids([["play"]]))


def test_ids_of_the_lexicon_are_refused_where_boundaries_are_added(tmp_path: Path) -> None:
    """The layer only knows the boundaries in bytes, whose ids are those of other words and characters here."""
    make(tmp_path)
    lexicon = formats.load(tmp_path).lexicon
    assert lexicon is not None
    ids = torch.from_numpy(lexicon.encode(["play", "of"]))[None]
    for layer in (elmo.Elmo.from_pretrained(tmp_path), allennlp.Elmo.from_pretrained(tmp_path)):
        with pytest.raises(ElmoError, match=r"give its words to .* as vocab_to_cache"):
            layer(ids)


# --- what is refused


@pytest.mark.parametrize("difference", [0, 1])
def test_a_projection_that_is_not_narrower_than_the_cell(difference: int, tmp_path: Path) -> None:
    """Their cells are projected whatever their sizes, ours only to fewer dimensions; the sentence says so."""
    make(tmp_path)
    state = torch.load(tmp_path / "encoder.pkl", weights_only=True)
    dim = state["forward_layer_0.state_projection.weight"].shape[1]
    for name in state:
        if name.endswith("state_projection.weight"):
            state[name] = torch.zeros(dim + difference, dim)
    torch.save(state, tmp_path / "encoder.pkl")
    assert_refused(tmp_path, "state_projection.weight", f"({dim + difference}, {dim})", "fewer dimensions")


def test_names_and_clips_are_read_as_the_original_reads_them(tmp_path: Path) -> None:
    """The case of a name does not matter, and 0 is no clip."""
    make(tmp_path)
    edit(tmp_path / SETTINGS_FILE, encoder__name="ELMo", token_embedder__name="CNN")
    edit(tmp_path / SETTINGS_FILE, encoder__cell_clip=0, encoder__proj_clip=0)
    lstm = formats.load(tmp_path).config.lstm
    assert (lstm.cell_clip, lstm.proj_clip) == (None, None)


def edit(path: Path, **changes: object) -> None:
    settings = json.loads(path.read_text(encoding="utf-8"))
    for dotted, value in changes.items():
        section, key = dotted.split("__")
        settings[section][key] = value
    path.write_text(json.dumps(settings), encoding="utf-8")


@pytest.mark.parametrize(
    ("section", "name"), [("token_embedder", "lstm"), ("encoder", "lstm"), ("encoder", None)], ids=str
)
def test_other_kinds_of_encoders_are_refused_by_name(section: str, name: str | None, tmp_path: Path) -> None:
    make(tmp_path)
    edit(tmp_path / SETTINGS_FILE, **{f"{section}__name": name})
    assert_refused(tmp_path, SETTINGS_FILE, section, repr(name))


def test_an_lstm_over_characters_is_refused_by_name(tmp_path: Path) -> None:
    """Without the settings, only its tensors tell."""
    make(tmp_path)
    (tmp_path / SETTINGS_FILE).unlink()
    state = torch.load(tmp_path / "token_embedder.pkl", weights_only=True)
    torch.save({**state, "char_lstm.weight_ih_l0": torch.zeros(4, 4)}, tmp_path / "token_embedder.pkl")
    assert_refused(tmp_path, "token_embedder.pkl: its token embedder is 'lstm'")


def test_a_model_of_words_alone_is_refused_by_name(tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / "token_embedder.pkl"
    state = torch.load(path, weights_only=True)
    kept = {name: tensor for name, tensor in state.items() if not name.startswith(("char_emb", "convolutions"))}
    assert any(name.startswith("word_emb") for name in kept)
    torch.save(kept, path)
    assert_refused(tmp_path, "token_embedder.pkl", "has no characters (char_dim 0)")


@pytest.mark.parametrize("key", ["encoder__cell_clip", "token_embedder__activation"])
def test_settings_that_make_no_sense(key: str, tmp_path: Path) -> None:
    make(tmp_path)
    edit(tmp_path / SETTINGS_FILE, **{key: "three"})
    assert_refused(tmp_path, SETTINGS_FILE, key.split("__")[1])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", f"{SETTINGS_FILE}: expected a mapping of keys"),
        ('{"encoder": []}', f"{SETTINGS_FILE}: encoder: expected a mapping of keys, found list"),
    ],
)
def test_settings_that_are_no_mapping(text: str, says: str, tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / SETTINGS_FILE).write_text(text, encoding="utf-8")
    assert_refused(tmp_path, says)


def test_a_list_that_is_far_too_long_is_refused(tmp_path: Path) -> None:
    """It is of another model, or never ends."""
    make(tmp_path)
    with (tmp_path / "char.dic").open("a", encoding="utf-8") as file:
        file.write("a\t1\n" * 1000)
    assert_refused(tmp_path, "char.dic: has far more lines than the tensors have rows")


LINES = {"a\tb\t3": "line 3", "a\tx": "line 3", "a\t26": "below 26", "a\t-1": "line 3", "a\t" + "9" * 5000: "line 3"}


@pytest.mark.parametrize(("line", "part"), LINES.items(), ids=[line[:8] for line in LINES])
def test_a_bad_line_in_a_list(line: str, part: str, tmp_path: Path) -> None:
    make(tmp_path)
    lines = (tmp_path / "char.dic").read_text(encoding="utf-8").split("\n")
    lines[2] = line
    (tmp_path / "char.dic").write_text("\n".join(lines), encoding="utf-8")
    assert_refused(tmp_path, "char.dic", part)


@pytest.mark.parametrize("name", ["char.dic", "word.dic", "config.json", "encoder.pkl", "token_embedder.pkl"])
def test_a_missing_or_truncated_file(name: str, tmp_path: Path) -> None:
    make(tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2] if name.endswith("pkl") else data[:6])
    assert_refused(tmp_path, name)
    (tmp_path / name).unlink()
    assert_refused(tmp_path, name)


@pytest.mark.parametrize("sign", SPECIAL)
def test_a_list_without_a_sign_that_is_needed(sign: str, tmp_path: Path) -> None:
    make(tmp_path)
    text = (tmp_path / "char.dic").read_text(encoding="utf-8").replace(f"{sign}\t", f"{sign[:-1]}\t")
    (tmp_path / "char.dic").write_text(text, encoding="utf-8")
    assert_refused(tmp_path, "char.dic", f"{sign} is missing from the list of characters")


@pytest.mark.parametrize("file", ["encoder.pkl", "token_embedder.pkl"])
def test_missing_tensors_other_shapes_and_numbers_that_are_no_weights(file: str, tmp_path: Path) -> None:
    """The error names the missing tensor, or one that no longer fits, because sizes are read from the tensors."""
    make(tmp_path)
    state = torch.load(tmp_path / file, weights_only=True)
    for name, tensor in state.items():
        torch.save({key: value for key, value in state.items() if key != name}, tmp_path / file)
        assert_refused(tmp_path, ": tensor '")
        torch.save({**state, name: torch.full_like(tensor, torch.nan)}, tmp_path / file)
        assert_refused(tmp_path, f"'{name}'", "not a weight")
        torch.save({**state, name: torch.zeros(3, 5, 7, 2)}, tmp_path / file)
        assert_refused(tmp_path, f"'{name}'", "shape")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("encoder.pkl", "forward_layer_0.state_projection.weight"),
        ("token_embedder.pkl", "convolutions.0.weight"),
    ],
)
def test_a_missing_tensor_that_tells_sizes_is_named(file: str, name: str, tmp_path: Path) -> None:
    """Neither the other file nor the settings are to blame."""
    make(tmp_path)
    state = torch.load(tmp_path / file, weights_only=True)
    del state[name]
    torch.save(state, tmp_path / file)
    assert_refused(tmp_path, f"{tmp_path}: tensor '{name}' is missing")


@pytest.mark.parametrize("file", ["encoder.pkl", "token_embedder.pkl"])
def test_pickles_with_code_are_never_run(file: str, tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / file).write_bytes(pickle.dumps({"x": Evil(tmp_path / "evil")}))
    assert_refused(tmp_path, file, "refused, because it contains objects or code")
    assert not (tmp_path / "evil").exists()
