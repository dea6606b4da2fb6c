"""Code written for AllenNLP runs after changing its import: arguments, shapes, state, files and stored weights."""

from __future__ import annotations

import inspect
import io
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import elmo
from elmo.errors import ElmoError
from elmo.formats.model_cache import cached_models
from elmo.formats.published import DEFAULT, published_models
from elmo.integrations.allennlp import Elmo, ElmoEmbedder, ElmoTokenEmbedder, batch_to_ids
from make_allennlp import MIXES, PARAMETERS, make_state_dict
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, make, make_options, make_weights, read_weights
from oracle import Oracle, encode_sentence, scalar_mix
from published import PUBLISHED, Release
from serving import serving

BATCHES = [
    [["A", "new", "play", "opened", "."], ["Hi"], ["naïve", "日本語"]],
    [["Hi"]],
    [["A", "play"], ["so", "what", "?"], ["new"], ["and", "more"]],
    [["Hi", "again"], ["A"]],
]
"""Batches of different sizes. Row i continues from the last row i, if an earlier batch had one."""

TOLERANCE = 1e-5
"""Rounding of float32, compared with the oracle's float64."""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    folder, _, _ = make(tmp_path / "model")
    return str(folder / OPTIONS_FILE), str(folder / WEIGHTS_FILE)


def make_oracle() -> Oracle:
    options = make_options()
    return Oracle(make_weights(options), options)


# --- Elmo


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"num_output_representations": 0}, "`num_output_representations`: 0 is not positive"),
        ({"num_output_representations": 1.0}, "`num_output_representations`: expected a whole number, found 1.0"),
        ({"dropout": 2.0}, r"`dropout`: 2\.0 is not in \[0, 1\)"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], says: str, files: tuple[str, str]) -> None:
    with pytest.raises(ElmoError, match=f"^{says}$"):
        Elmo(*files, **({"num_output_representations": 1} | arguments))
    with pytest.raises(ElmoError, match=f"^{says}$"):
        Elmo.from_pretrained(Path(files[1]), **arguments)


@pytest.mark.parametrize("words", [None, ["A", "play"]], ids=str)
def test_numbers_of_words_must_be_a_tensor(words: list[str] | None, files: tuple[str, str]) -> None:
    layer = Elmo(*files, 1, vocab_to_cache=words)
    with pytest.raises(ElmoError, match=r"^`word_inputs`: expected a tensor, found list$"):
        layer(batch_to_ids([["A"]]), [[1]])


def test_elmo_has_the_arguments_of_allennlp_and_no_others() -> None:
    ours = inspect.signature(Elmo.__init__).parameters
    assert [(p.name, p.default) for p in list(ours.values())[1:]] == list(PARAMETERS.items())


def test_every_argument_can_be_given_by_position(files: tuple[str, str]) -> None:
    layer = Elmo(*files, 2, True, True, 0.25, ["", "A"], True, [0.0, 1.0, 2.0], None)
    assert layer.bilm.forward_lstm.layers[0].weight_ih.requires_grad
    assert layer.mixes[0].layer_norm
    assert layer.dropout == 0.25
    assert layer.words is not None
    assert layer.keep_sentence_boundaries
    assert layer.mixes[1].scores.tolist() == [0, 1, 2]
    assert not layer.mixes[1].gamma.requires_grad
    assert isinstance(layer, elmo.Elmo)


@pytest.mark.parametrize("training", [False, True])
def test_the_state_goes_from_batch_to_batch(training: bool, files: tuple[str, str]) -> None:
    """The state is carried in training, too. Without dropout, the numbers are the same there."""
    layer = Elmo(*files, 1, dropout=0.0).train(training)
    assert layer.get_output_dim() == 12
    for batch, wanted in zip(BATCHES, make_oracle().carried(BATCHES), strict=True):
        output = layer(inputs=batch_to_ids(batch).int())
        [found] = output["elmo_representations"]
        assert output["mask"].dtype == torch.bool
        assert found.dtype == torch.float32
        for row, layers in enumerate(wanted):
            length = len(batch[row])
            np.testing.assert_allclose(found[row, :length].detach(), layers.mean(axis=0), atol=TOLERANCE, rtol=0)
            assert not found[row, length:].any()


def test_state_where_users_reach_for_it(files: tuple[str, str]) -> None:
    layer = Elmo(*files, 1, dropout=0.0)
    ids = batch_to_ids(BATCHES[0])

    def run() -> torch.Tensor:
        return layer(ids)["elmo_representations"][0]

    first = run()
    assert layer._elmo_lstm._elmo_lstm.stateful
    assert not torch.allclose(run(), first, atol=1e-3)
    layer._elmo_lstm._elmo_lstm.reset_states()
    assert torch.equal(run(), first)
    layer._elmo_lstm._elmo_lstm.reset_states()
    layer._elmo_lstm._elmo_lstm.stateful = False
    assert torch.equal(run(), first)
    assert torch.equal(run(), first)
    layer._elmo_lstm._elmo_lstm.stateful = True
    layer._elmo_lstm._elmo_lstm._states = None
    assert torch.equal(run(), first)


def test_mixes_under_their_old_names(files: tuple[str, str]) -> None:
    """The old names lead to the parameters that are trained, so that penalties on them have an effect."""
    layer = Elmo(*files, 2)
    sum((score + 1) ** 2 for score in layer.scalar_mix_1.scalar_parameters).backward()
    assert [parameter.grad.tolist() for parameter in layer.scalar_mix_1.scalar_parameters] == [[2.0]] * 3
    assert layer.scalar_mix_0.gamma is layer.mixes[0].gamma
    for name in ("scalar_mix_2", "scalar_mix_", "scalar_mix_x", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(layer, name)


def test_from_pretrained_carries_the_state_too(files: tuple[str, str]) -> None:
    assert Elmo.from_pretrained(Path(files[0]).parent).stateful
    assert not Elmo.from_pretrained(Path(files[0]).parent, 1, stateful=False).stateful


# --- what AllenNLP stored


class TaskModel(torch.nn.Module):
    """A task model with an ELMo inside."""

    def __init__(self, layer: Elmo) -> None:
        super().__init__()
        self.embedder = torch.nn.ModuleDict({"elmo": layer})
        self.tags = torch.nn.Linear(2, 2)


def other_state(prefix: str = "") -> dict[str, torch.Tensor]:
    """Return the state of another ELMo than that of `files`, as AllenNLP stored it."""
    return make_state_dict(make_weights(make_options(), seed=1), prefix)


def assert_is_the_other(layer: Elmo) -> None:
    options = make_options()
    layers = Oracle(make_weights(options, seed=1), options).row(encode_sentence(BATCHES[0][0]))[0]
    found = layer(batch_to_ids(BATCHES[0][:1]))["elmo_representations"]
    for representation, (scores, gamma) in zip(found, MIXES, strict=True):
        wanted = scalar_mix(layers[:, None], np.array(scores), gamma)[0, 1:-1]
        np.testing.assert_allclose(representation[0].detach(), wanted, atol=2 * TOLERANCE, rtol=0)


def test_loads_the_state_that_allennlp_stored(files: tuple[str, str]) -> None:
    """AllenNLP's state loads strictly, alone or in a task model, without cached vectors. Our own state still loads."""
    layer = Elmo(*files, 2, dropout=0.0)
    layer.load_state_dict(other_state())
    assert_is_the_other(layer)
    model = TaskModel(Elmo(*files, 2, dropout=0.0))
    own = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("tags")}
    cached = {"embedder.elmo._elmo_lstm._word_embedding.weight": torch.zeros(3, 6)}
    given = {**own, **cached, **other_state("embedder.elmo.")}
    names = set(given)
    model.load_state_dict(given)
    assert set(given) == names
    assert_is_the_other(model.embedder["elmo"])
    again = Elmo(*files, 2, dropout=0.0)
    again.load_state_dict(layer.state_dict())
    assert_is_the_other(again)


def test_what_earlier_versions_stored_loads(files: tuple[str, str]) -> None:
    """State dicts of earlier versions have the names of `elmo.Elmo`, alone and inside a task model."""
    before = elmo.Elmo(*files, 2, dropout=0.0)
    with torch.no_grad():
        for parameter in before.parameters():
            parameter += 0.1
    before.mixes[0].scores.data[1] = 2.0
    ids = batch_to_ids(BATCHES[0])
    wanted = before(ids)["elmo_representations"]
    layer = Elmo(*files, 2, dropout=0.0)
    layer.load_state_dict(before.state_dict())
    torch.testing.assert_close(layer(ids)["elmo_representations"], wanted, atol=1e-6, rtol=0)
    model = TaskModel(Elmo(*files, 2, dropout=0.0))
    own = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("tags")}
    model.load_state_dict({**own, **{f"embedder.elmo.{k}": tensor for k, tensor in before.state_dict().items()}})
    torch.testing.assert_close(model.embedder["elmo"](ids)["elmo_representations"], wanted, atol=1e-6, rtol=0)


def test_states_that_do_not_fit_are_refused(files: tuple[str, str]) -> None:
    layer = Elmo(*files, 2)
    name = "_elmo_lstm._elmo_lstm.forward_layer_1.input_linearity.weight"
    with pytest.raises(RuntimeError, match=rf'Missing key\(s\) in state_dict: "{re.escape(name)}"\.'):
        layer.load_state_dict({key: tensor for key, tensor in other_state().items() if key != name})
    for broken, message in (
        ({**other_state(), name: torch.zeros(4, 4)}, rf"'{name}': has shape \(4, 4\)"),
        ({**other_state(), "scalar_mix_1.gamma": torch.zeros(2)}, r"'scalar_mix_1\.gamma': has shape \(2,\)"),
    ):
        with pytest.raises(ElmoError, match=message):
            layer.load_state_dict(broken)
    more = {**other_state(), name.replace("1", "2"): torch.zeros(48, 6), "scalar_mix_2.gamma": torch.ones(1)}
    for unexpected in ("forward_layer_2", "scalar_mix_2"):
        with pytest.raises(RuntimeError, match=rf"Unexpected key.*{unexpected}"):
            layer.load_state_dict(more)


def test_a_state_with_only_some_tensors(files: tuple[str, str]) -> None:
    """As in AllenNLP, `strict` decides, and what is missing has AllenNLP's names and stays as it is, to the bit."""
    layer = Elmo(*files, 2)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    for some in ({}, {name: tensor for name, tensor in other_state().items() if "forward_layer_0.state" in name}):
        found = layer.load_state_dict(some, strict=False)
        assert sorted(found.missing_keys) == sorted(before.keys() - some.keys())
        assert found.unexpected_keys == []
        for name, tensor in layer.state_dict().items():
            if name in some:
                torch.testing.assert_close(tensor, some[name])
            else:
                assert torch.equal(tensor, before[name]), name


# --- ElmoEmbedder


def test_embedder_carries_the_state_through_all_its_methods(files: tuple[str, str]) -> None:
    """A batch may go through any method. As in AllenNLP, batches without tokens don't change the state."""
    embedder = ElmoEmbedder(*files)

    def as_tensors(batch: list[list[str]]) -> list[np.ndarray]:
        layers, mask = embedder.batch_to_embeddings(batch)
        longest = max(map(len, batch))
        assert layers.shape == (len(batch), 3, longest, 12)
        assert mask.dtype == torch.int64
        assert mask.tolist() == [[1] * len(s) + [0] * (longest - len(s)) for s in batch]
        assert not layers.transpose(1, 2)[mask == 0].any()
        return [row[:, : len(sentence)].numpy() for row, sentence in zip(layers, batch, strict=True)]

    methods = [
        embedder.embed_batch,
        lambda batch: [embedder.embed_sentence(batch[0])],
        as_tensors,
        lambda batch: list(embedder.embed_sentences(iter(batch), batch_size=len(batch))),
    ]
    for method, batch, wanted in zip(methods, BATCHES, make_oracle().carried(BATCHES), strict=True):
        assert embedder.embed_sentence([]).shape == (3, 0, 12)
        found = method(batch)
        assert len(found) == len(batch)
        for array, layers in zip(found, wanted, strict=True):
            assert array.dtype == np.float32
            np.testing.assert_allclose(array, layers, atol=TOLERANCE, rtol=0)


def test_empty_sentences_and_batches(files: tuple[str, str]) -> None:
    """The boundaries of an empty sentence among others are read, as in AllenNLP."""
    embedder = ElmoEmbedder(*files)
    assert embedder.embed_batch([]) == []
    assert list(embedder.embed_sentences([])) == []
    assert [array.shape for array in embedder.embed_batch([[], []])] == [(3, 0, 12)] * 2
    layers, mask = embedder.batch_to_embeddings([[], []])
    assert (layers.shape, mask.shape) == ((2, 3, 0, 12), (2, 0))
    batches = [[["A"], []], [["A"], ["A"]]]
    for batch, wanted in zip(batches, make_oracle().carried(batches), strict=True):
        for array, layers in zip(embedder.embed_batch(batch), wanted, strict=True):
            np.testing.assert_allclose(array, layers.reshape(3, -1, 12), atol=TOLERANCE, rtol=0)


def test_embedders_state_where_users_reach_for_it(files: tuple[str, str]) -> None:
    embedder = ElmoEmbedder(*files)
    first = embedder.embed_sentence(["A", "play"])
    assert np.abs(embedder.embed_sentence(["A", "play"]) - first).max() > 1e-3
    embedder.elmo_bilm._elmo_lstm.reset_states()
    np.testing.assert_array_equal(embedder.embed_sentence(["A", "play"]), first)
    embedder.elmo_bilm._elmo_lstm.stateful = False
    np.testing.assert_allclose(embedder.embed_sentence(["A", "play"]), first, atol=1e-6, rtol=0)
    assert not embedder.elmo_bilm._elmo_lstm.stateful
    with pytest.raises(
        AttributeError, match=r"elmo_bilm\.cuda: elmo_bilm only has _elmo_lstm; choose a GPU by cuda_device"
    ):
        embedder.elmo_bilm.cuda()


def test_an_embedder_can_be_pickled(files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickle holds both names, which need not be a pair, as absolute paths; the carried state goes along."""
    options = tmp_path / "elsewhere.json"
    Path(files[0]).rename(options)
    monkeypatch.chdir(tmp_path)
    embedder = ElmoEmbedder(options.name, files[1])
    embedder.embed_batch(BATCHES[0])
    data = pickle.dumps(embedder)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    again = pickle.loads(data)
    for found, wanted in zip(again.embed_batch(BATCHES[1]), embedder.embed_batch(BATCHES[1]), strict=True):
        np.testing.assert_array_equal(found, wanted)
    sizes = json.loads(options.read_text(encoding="utf-8"))
    sizes["lstm"]["cell_clip"] = 0.01
    options.write_text(json.dumps(sizes), encoding="utf-8")
    with pytest.raises(ElmoError, match="is another model than when the ElmoEmbedder was pickled"):
        pickle.loads(data)


def test_sentences_are_taken_batch_by_batch(files: tuple[str, str]) -> None:
    taken = []
    sentences = (taken.append(i) or ["w"] * (i + 1) for i in range(10))
    vectors = ElmoEmbedder(*files).embed_sentences(sentences, batch_size=3)
    assert next(vectors).shape == (3, 1, 12)
    assert taken == [0, 1, 2]
    assert [array.shape[1] for array in vectors] == list(range(2, 11))


def test_bad_arguments_of_the_embedder_are_refused(files: tuple[str, str]) -> None:
    embedder = ElmoEmbedder(*files)
    for call, message in (
        (lambda: ElmoEmbedder(files[0]), "`weight_file`: is not given; pass the paths or addresses"),
        (lambda: ElmoEmbedder(files[0], "s3://bucket/w.hdf5"), r"`weight_file`: s3://bucket/w\.hdf5 is an address"),
        (lambda: ElmoEmbedder(*files, cuda_device=None), "`cuda_device`: expected the number of a GPU, .* found None"),
        (lambda: ElmoEmbedder(*files, cuda_device="0"), "`cuda_device`: expected the number of a GPU, .* found '0'"),
        (lambda: list(embedder.embed_sentences([["A"]], batch_size=0)), "`batch_size`: 0 is not positive"),
        (lambda: embedder.embed_batch(["A sentence"]), "found a string"),
        (lambda: embedder.embed_sentence("A sentence"), "found a string"),
    ):
        with pytest.raises(ElmoError, match=message):
            call()


def test_files_are_taken_by_their_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without files, AllenNLP's own model is loaded, the same one that `elmo.load` finds under its name."""
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    folder, _, _ = make(tmp_path / "model")
    with serving() as site:
        site.files = {f"/{name}": (folder / name).read_bytes() for name in (OPTIONS_FILE, WEIGHTS_FILE)}
        own = replace(published_models()[DEFAULT], files=tuple(f"{site.address}{path}" for path in site.files))
        monkeypatch.setitem(published_models(), DEFAULT, own)
        wanted = ElmoEmbedder(folder / OPTIONS_FILE, folder / WEIGHTS_FILE).embed_sentence(["A", "play"])
        np.testing.assert_array_equal(ElmoEmbedder().embed_sentence(["A", "play"]), wanted)
        num_requests = len(site.requests)
        for embedder in (ElmoEmbedder(*own.files), ElmoEmbedder(folder / OPTIONS_FILE, own.files[1])):
            np.testing.assert_array_equal(embedder.embed_sentence(["A", "play"]), wanted)
        assert ElmoTokenEmbedder().get_output_dim() == elmo.load(DEFAULT).width == 12
        assert len(site.requests) == num_requests
    assert [model.name for model in cached_models()] == [DEFAULT]


@pytest.mark.gpu
def test_on_a_gpu(files: tuple[str, str]) -> None:
    embedder = ElmoEmbedder(*files, cuda_device=0)
    for batch, wanted in zip(BATCHES, make_oracle().carried(BATCHES), strict=True):
        layers, mask = embedder.batch_to_embeddings(batch)
        assert layers.is_cuda
        assert mask.is_cuda
        for array, expected in zip(layers.cpu().numpy(), wanted, strict=True):
            np.testing.assert_allclose(array[:, : expected.shape[1]], expected, atol=TOLERANCE, rtol=0)


# --- files

TEXT = "A new play opened .\n Hi  there \nA new play opened .\n\nnaïve 日本語\n"
LINES = ["A new play opened .", "Hi  there", "A new play opened .", "", "naïve 日本語"]


def embed_text(files: tuple[str, str], path: Path, text: str = TEXT, **options: Any) -> dict[str, Any]:
    ElmoEmbedder(*files).embed_file(io.StringIO(text), str(path), **options)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    return read_weights(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_files_have_allennlps_layout(output_format: str, files: tuple[str, str], folder: Path) -> None:
    """Entries are named by line, the index has the last of equal lines, and the state is carried between batches."""
    content = embed_text(files, folder / "vectors.hdf5", output_format=output_format, batch_size=2)
    assert list(content) == ["0", "1", "2", "3", "4", "sentence_to_index"]
    index = content["sentence_to_index"]
    assert index.shape == (1,)
    assert json.loads(index[0]) == {LINES[1]: "1", LINES[2]: "2", "": "3", LINES[4]: "4"}
    sentences = [line.split() for line in LINES]
    pick = {"all": lambda x: x, "top": lambda x: x[-1], "average": lambda x: x.mean(axis=0)}[output_format]
    batches = [sentences[:2], sentences[2:4], sentences[4:]]
    wanted = [layers for batch in make_oracle().carried(batches) for layers in batch]
    for number, layers in enumerate(wanted):
        found = content[str(number)]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, pick(layers.reshape(3, -1, 12)), atol=TOLERANCE, rtol=0)


def test_forgotten_sentences_leave_no_index(files: tuple[str, str], folder: Path) -> None:
    assert list(embed_text(files, folder / "vectors", forget_sentences=True)) == ["0", "1", "2", "3", "4"]


def test_sentences_as_keys(files: tuple[str, str], folder: Path) -> None:
    """A slash in a sentence makes groups of HDF5, but the sentence still leads to its vectors."""
    content = embed_text(files, folder / "vectors.h5", "A play .\nHi and / or so\n", use_sentence_keys=True)
    assert sorted(content) == ["A play .", "Hi and / or so"]
    assert content["Hi and / or so"].shape == (3, 5, 12)


def test_a_text_is_closed_when_it_is_embedded(files: tuple[str, str], folder: Path) -> None:
    text = io.StringIO("A play .\n")
    ElmoEmbedder(*files).embed_file(text, folder / "vectors.h5")
    assert text.closed


@pytest.mark.parametrize("line", [".", "Hi/there", "a\0b", ""])
def test_lines_that_cannot_be_keys(line: str, files: tuple[str, str], folder: Path) -> None:
    """Lines that can't be names of HDF5 are refused, and an existing file stays as it was."""
    (folder / "vectors.h5").write_text("before")
    with pytest.raises(ElmoError, match=r"vectors\.h5: line 2 can't be a name.*leave out use_sentence_keys"):
        embed_text(files, folder / "vectors.h5", f"Hi\n{line}\n", use_sentence_keys=True)
    assert (folder / "vectors.h5").read_text() == "before"
    assert len(list(folder.iterdir())) == 1


def test_repeated_lines_cannot_be_keys(files: tuple[str, str], folder: Path) -> None:
    (folder / "vectors.h5").write_text("before")
    with pytest.raises(ElmoError, match=r"vectors\.h5: line 3 repeats an earlier line,.*leave out use_sentence_keys"):
        embed_text(files, folder / "vectors.h5", "Hi\nso\nHi\n", use_sentence_keys=True)
    assert (folder / "vectors.h5").read_text() == "before"
    assert len(list(folder.iterdir())) == 1


def test_bad_arguments_of_embed_file_are_refused(files: tuple[str, str], folder: Path) -> None:
    for path, options, message in (
        ("vectors.h5", {"output_format": "mean"}, "`output_format`: 'mean' is none of all, top, average"),
        ("vectors.h5", {"batch_size": 0}, "`batch_size`: 0 is not positive"),
        ("absent/vectors.h5", {}, "there is no folder"),
    ):
        with pytest.raises(ElmoError, match=message):
            embed_text(files, folder / path, **options)
    with pytest.raises(ElmoError, match=r"^`input_file`: expected the lines of a text, found a path; pass open"):
        ElmoEmbedder(*files).embed_file("in.txt", folder / "vectors.h5")
    assert not list(folder.iterdir())


def test_an_existing_file_is_replaced(files: tuple[str, str], folder: Path) -> None:
    (folder / "vectors.h5").write_text("before")
    assert len(embed_text(files, folder / "vectors.h5")) == 6


# --- the published numbers


@pytest.mark.external
def test_published_vectors_through_the_embedder(release: Release, tmp_path: Path) -> None:
    """Every method starts from zeros. Single sentences of a column equal its row, because rows don't share a state."""
    batches, sentences, wanted = release.batches, release.sentences, release.tops
    embedder = ElmoEmbedder(*release.files)

    def check(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
        for array, top in zip(found, expected, strict=True):
            np.testing.assert_allclose(array[-1], top, atol=PUBLISHED, rtol=0)
        embedder.elmo_bilm._elmo_lstm.reset_states()

    check([array for batch in batches for array in embedder.embed_batch(batch)], wanted)
    check(list(embedder.embed_sentences(sentences, batch_size=3)), wanted)
    check(
        [
            row[:, : int(row_mask.sum())].numpy()
            for batch in batches
            for row, row_mask in zip(*embedder.batch_to_embeddings(batch), strict=True)
        ],
        wanted,
    )
    check([embedder.embed_sentence(batch[1]) for batch in batches], [top[1] for top in release.top])
    lines = io.StringIO("\n".join(map(" ".join, sentences)))
    embedder.embed_file(lines, tmp_path / "vectors.hdf5", batch_size=3)
    with h5py.File(tmp_path / "vectors.hdf5") as file:
        check([file[str(number)][()] for number in range(30)], wanted)


@pytest.mark.external
@pytest.mark.parametrize("by_number", [False, True])
def test_published_vectors_through_elmo(by_number: bool, release: Release) -> None:
    """As in AllenNLP's own test, all weight is on the top layer. Cached words give the same vectors."""
    words = ["", *sorted({word for sentence in release.sentences for word in sentence})]
    scores = [-9e10, -9e10, 1.0]
    layer = Elmo(*release.files, 1, dropout=0.0, vocab_to_cache=words, scalar_mix_parameters=scores)
    for batch, wanted in zip(release.batches, release.top, strict=True):
        longest = max(map(len, batch))
        numbers = torch.tensor([[words.index(w) for w in s] + [0] * (longest - len(s)) for s in batch])
        output = layer(batch_to_ids(batch), numbers if by_number else None)
        for found, top in zip(output["elmo_representations"][0], wanted, strict=True):
            np.testing.assert_allclose(found[: len(top)].detach(), top, atol=PUBLISHED, rtol=0)
