"""`elmo.Elmo` is saved, loaded and uploaded as models are on the Hugging Face Hub; the Hub is never asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import HfApi, ModelCard
from torch import Tensor, nn
from torch.nn.utils import prune

import elmo
import make_many_langs
from bridge import make_model
from elmo import formats
from elmo.embed.warm import mean_state
from elmo.errors import ElmoError
from elmo.formats.native import save_warm_state

BATCH = elmo.batch_to_ids([["A", "new", "play"], ["play"]])


def make_layer(folder: Path, **options: Any) -> elmo.Elmo:
    """Make a layer with a card of its own, and mixes that a task has trained."""
    formats.save_native(make_model(softmax=True), folder, {"perplexity": "39.7"}, {"language": "cs"})
    layer = elmo.Elmo.from_pretrained(folder, 2, dropout=0.0, **options).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in layer.mixes.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return layer


def test_weights_that_torch_computes_when_used_are_refused(tmp_path: Path) -> None:
    """They have other names in the state dict: a model without them took the place of the one in the folder."""
    layer = make_layer(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    lstm = layer.bilm.forward_lstm.layers[0]
    prune.l1_unstructured(lstm, "weight_hh", 0.5)
    for use in (lambda: layer.save_pretrained(tmp_path), lambda: elmo.Embedder(layer.as_model())):
        with pytest.raises(ElmoError, match=r"'forward_lstm\.layers\.0\.weight_hh_orig': the biLM computes a weight"):
            use()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    prune.remove(lstm, "weight_hh")
    layer.save_pretrained(tmp_path)
    assert torch.equal(formats.load(tmp_path).bilm.state_dict()["forward_lstm.layers.0.weight_hh"], lstm.weight_hh)


class Adapter(nn.Module):
    """Adds a small map to a linear map, as LoRA does, and shows the weight of that as its own."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.weight, self.bias = base, base.weight, base.bias
        self.small = nn.Linear(base.in_features, base.out_features)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` (N, F)."""
        return self.base(x) + self.small(x)


@pytest.mark.parametrize("name", ["highways.0.transform", "highways.0.gate", "projection"])
def test_an_adapter_is_used_but_not_saved(tmp_path: Path, name: str) -> None:
    layer = make_layer(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    vectors = layer(BATCH)["elmo_representations"][0]
    parent, _, attribute = f"bilm.char_encoder.{name}".rpartition(".")
    adapter = Adapter(layer.get_submodule(f"{parent}.{attribute}"))
    setattr(layer.get_submodule(parent), attribute, adapter)
    assert not torch.allclose(layer(BATCH)["elmo_representations"][0], vectors, rtol=0, atol=1e-5)
    for use in (lambda: layer.save_pretrained(tmp_path), lambda: elmo.Embedder(layer.as_model())):
        with pytest.raises(ElmoError, match=r"computes a weight from this tensor.*merging an adapter"):
            use()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    nn.init.zeros_(adapter.small.weight)
    nn.init.zeros_(adapter.small.bias)
    torch.testing.assert_close(layer(BATCH)["elmo_representations"][0], vectors)


@pytest.mark.parametrize("options", [{}, {"do_layer_norm": True}, {"top_only": True}], ids=str)
def test_what_is_saved_comes_back(options: dict[str, bool], tmp_path: Path) -> None:
    layer = make_layer(tmp_path / "from", **options)
    assert layer.save_pretrained(tmp_path / "to") is None
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == [
        "README.md",
        "config.json",
        "mixes.safetensors",
        "model.safetensors",
        "training.json",
    ]
    again = elmo.Elmo.from_pretrained(tmp_path / "to", 2, dropout=0.0).eval()
    for found, expected in zip(again(BATCH)["elmo_representations"], layer(BATCH)["elmo_representations"], strict=True):
        assert torch.equal(found, expected)


def test_the_card_keeps_its_figures_and_takes_metadata(tmp_path: Path) -> None:
    layer = make_layer(tmp_path / "from")
    metadata = {"license": "cc-by-sa-4.0", "datasets": ["someone/czech"]}
    layer.save_pretrained(tmp_path / "to", model_card_kwargs=metadata)
    card = ModelCard.load(tmp_path / "to" / "README.md")
    assert (card.data.license, card.data.language, card.data.library_name) == ("cc-by-sa-4.0", "cs", "elmo-torch")
    assert card.data.to_dict()["datasets"] == ["someone/czech"]
    assert "| perplexity | 39.7 |" in card.text


@pytest.mark.parametrize("has_card", [True, False])
def test_a_layer_that_a_task_has_trained_has_no_figures_of_before(has_card: bool, tmp_path: Path) -> None:
    """They would be those of other weights. What the card's head says of the text is still true."""
    layer = make_layer(tmp_path / "from", requires_grad=True)
    save_warm_state(layer.bilm.initial_state(1), tmp_path / "from", layer.bilm)
    if not has_card:
        (tmp_path / "from" / "README.md").unlink()
    layer = elmo.Elmo.from_pretrained(tmp_path / "from", 1, requires_grad=True)
    layer.bilm.forward_lstm.layers[0].bias.data += 1  # pyright: ignore
    layer.save_pretrained(tmp_path / "to")
    card, found = ModelCard.load(tmp_path / "to" / "README.md"), formats.load(tmp_path / "to")
    started = "native: from holds config.json and model.safetensors, whose weights a task has changed since"
    assert f"| started from | {started} |" in card.text
    assert "39.7" not in card.text
    assert card.data.language == ("cs" if has_card else None)
    assert found.figures == {"started from": started}
    assert found.warm_state is None
    assert layer.generate_model_card().text == card.text
    shared = elmo.Elmo(None, None, 1, module=layer)
    assert "39.7" not in shared.generate_model_card().text


def test_a_card_that_is_there_stays(tmp_path: Path) -> None:
    """An existing card may have been edited by hand, as is usual on the Hub, so it is not replaced."""
    layer = make_layer(tmp_path / "from")
    (tmp_path / "from" / "README.md").write_text("mine")
    layer.save_pretrained(tmp_path / "from")
    assert (tmp_path / "from" / "README.md").read_text() == "mine"
    assert formats.load(tmp_path / "from").figures == {"perplexity": "39.7"}


@pytest.mark.parametrize("head", ["- a\n- b", "license: [", "1: 2", "date: 2024-99-99", "a: " + 3_000 * "["])
def test_a_card_with_a_malformed_head_is_saved_without_it(head: str, tmp_path: Path) -> None:
    make_layer(tmp_path / "from")
    (tmp_path / "from" / "README.md").write_text(f"---\n{head}\n---\n# Mine\n")
    layer = elmo.Elmo.from_pretrained(tmp_path / "from")
    layer.save_pretrained(tmp_path / "to", model_card_kwargs={"license": "cc0-1.0"})
    assert (tmp_path / "to" / "README.md").read_text() == "---\nlicense: cc0-1.0\n---\n# Mine\n"
    with torch.no_grad():
        next(layer.bilm.parameters()).add_(1)
    assert layer.generate_model_card().data.library_name == "elmo-torch"


def test_a_card_that_cannot_be_written_leaves_no_model(tmp_path: Path) -> None:
    layer = make_layer(tmp_path / "from")
    with pytest.raises(TypeError, match="generator"):
        layer.save_pretrained(tmp_path / "to", model_card_kwargs={"license": (letter for letter in "ab")})
    assert [*(tmp_path / "to").iterdir()] == []


def test_what_belongs_to_the_same_weights_stays(tmp_path: Path) -> None:
    """A layer has no softmax, but that of its folder stays there until a task has changed the weights."""
    layer = make_layer(tmp_path / "from")
    save_warm_state(mean_state(layer.as_model(), [["a"]]), tmp_path / "from", layer.bilm)
    for name in ("softmax.safetensors", "vocabulary.txt", "warm.safetensors"):
        assert (tmp_path / "from" / name).exists()
    before = formats.load(tmp_path / "from")
    layer.save_pretrained(tmp_path / "from")
    found = formats.load(tmp_path / "from")
    assert found.softmax is not None
    assert before.softmax is not None
    assert torch.equal(found.softmax.get_parameter("weight"), before.softmax.get_parameter("weight"))
    assert found.vocabulary is not None
    assert before.vocabulary is not None
    assert found.vocabulary.words == before.vocabulary.words
    assert found.warm_state is not None
    assert len(found.mixes) == 2
    with torch.no_grad():
        next(layer.bilm.parameters()).add_(1)
    layer.save_pretrained(tmp_path / "from")
    found = formats.load(tmp_path / "from")
    assert (found.softmax, found.vocabulary, found.warm_state) == (None, None, None)


@pytest.mark.parametrize("name", ["softmax.safetensors", "warm.safetensors", "types.safetensors"])
def test_a_damaged_file_in_the_folder_is_removed(name: str, tmp_path: Path) -> None:
    layer = make_layer(tmp_path / "from")
    (tmp_path / "from" / name).write_bytes(b"no")
    layer.save_pretrained(tmp_path / "from")
    assert not (tmp_path / "from" / name).exists()
    assert formats.load(tmp_path / "from").num_mixes == 2


def test_a_layer_of_two_files_is_saved_with_a_card(tmp_path: Path) -> None:
    formats.save_bilm(make_model(), tmp_path / "bilm")
    layer = elmo.Elmo(tmp_path / "bilm" / "options.json", tmp_path / "bilm" / "lm_weights.hdf5", 1)
    layer.save_pretrained(tmp_path / "to")
    assert "# ELMo biLM" in (tmp_path / "to" / "README.md").read_text()
    assert len(formats.load(tmp_path / "to").mixes) == 1


@pytest.mark.parametrize("saves", [False, True])
def test_push_to_hub_uploads_a_whole_model(saves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`save_pretrained` does so if it is asked to, and gives the repository the name of the folder."""

    class Repository:
        def __init__(self, repo_id: str) -> None:
            self.repo_id = repo_id

    uploaded: dict[str, Any] = {}

    def upload(self: HfApi, **arguments: Any) -> str:
        folder = Path(arguments["folder_path"])
        uploaded.update(arguments, model=formats.load(folder), card=(folder / "README.md").read_text())
        return "https://huggingface.co/someone/elmo-cs/commit/1"

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **_: Repository(repo_id))
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    layer, metadata = make_layer(tmp_path / "from"), {"license": "cc0-1.0"}
    if saves:
        address = layer.save_pretrained(tmp_path / "elmo-cs", push_to_hub=True, model_card_kwargs=metadata)
        assert formats.load(tmp_path / "elmo-cs").num_mixes == 2
    else:
        address = layer.push_to_hub("someone/elmo-cs", model_card_kwargs=metadata)
    assert address == "https://huggingface.co/someone/elmo-cs/commit/1"
    assert uploaded["repo_id"] == ("elmo-cs" if saves else "someone/elmo-cs")
    assert "license: cc0-1.0" in uploaded["card"]
    for name, tensor in layer.bilm.state_dict().items():
        assert torch.equal(uploaded["model"].bilm.state_dict()[name], tensor)


def test_a_model_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    make_many_langs.make(tmp_path / "many")
    layer = elmo.Elmo.from_pretrained(tmp_path / "many")
    with pytest.raises(ElmoError, match="an ELMoForManyLangs model cannot be converted"):
        layer.save_pretrained(tmp_path / "to")


def test_a_file_is_no_folder_to_write_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ElmoError, match="file: is not a folder; name one"):
        make_layer(tmp_path).save_pretrained(tmp_path / "file")


def test_a_refusal_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    """The Hub's own method removes config.json before it writes, and published models have that file, too."""
    make_many_langs.make(tmp_path / "many")
    before = {path: path.read_bytes() for path in (tmp_path / "many").rglob("*") if path.is_file()}
    with pytest.raises(ElmoError, match="cannot be converted"):
        elmo.Elmo.from_pretrained(tmp_path / "many").save_pretrained(tmp_path / "many")
    assert {path: path.read_bytes() for path in (tmp_path / "many").rglob("*") if path.is_file()} == before


def test_a_shared_module_keeps_what_belongs_to_it(tmp_path: Path) -> None:
    first = make_layer(tmp_path / "from")
    elmo.Elmo(None, None, 1, module=first).save_pretrained(tmp_path / "to")
    assert "| perplexity | 39.7 |" in (tmp_path / "to" / "README.md").read_text()
    make_many_langs.make(tmp_path / "many")
    second = elmo.Elmo(None, None, 1, module=elmo.Elmo.from_pretrained(tmp_path / "many"))
    with pytest.raises(ElmoError, match="an ELMoForManyLangs model cannot be converted"):
        second.save_pretrained(tmp_path / "other")


@pytest.mark.parametrize("language", ["no", "a: b", "cs"])
def test_metadata_of_any_kind(language: str, tmp_path: Path) -> None:
    """YAML reads a bare `no` as False."""
    formats.save_native(make_model(), tmp_path, {}, {"language": language})
    assert ModelCard.load(tmp_path / "README.md").data.language == language


def test_torchs_default_device_changes_nothing(tmp_path: Path) -> None:
    """Models are loaded on the CPU, whatever the default is. On the device `meta`, nothing could be computed."""
    ids = elmo.batch_to_ids([["A", "new", "play"], ["Children"]])
    formats.save_native(make_model(), tmp_path, storage="float16")
    layer = elmo.Elmo.from_pretrained(tmp_path, dropout=0.0)
    wanted = layer(ids)["elmo_representations"][0]
    with torch.device("meta"):
        assert next(formats.load(tmp_path).bilm.parameters()).device.type == "cpu"
        assert torch.equal(layer(ids)["elmo_representations"][0], wanted)


def test_scores_that_choose_one_layer_are_kept(tmp_path: Path) -> None:
    """AllenNLP's documentation chooses a layer in this way."""
    layer = elmo.Elmo(None, None, 1, module=make_model().bilm, dropout=0.0, scalar_mix_parameters=[-9e10, 1, -9e10])
    layer.save_pretrained(tmp_path)
    again = elmo.Elmo.from_pretrained(tmp_path, 1, dropout=0.0)
    assert torch.equal(again(BATCH)["elmo_representations"][0], layer(BATCH)["elmo_representations"][0])


def test_stored_scores_that_have_no_effect_are_not_trained(tmp_path: Path) -> None:
    """They would get no gradient, which parallel training takes for an error."""
    formats.save_native(make_model(), tmp_path / "model")
    layer = elmo.Elmo.from_pretrained(tmp_path / "model", 1, top_only=True)
    layer.save_pretrained(tmp_path / "layer")
    again = elmo.Elmo.from_pretrained(tmp_path / "layer", 1)
    for each in (layer, again):
        assert [name for name, parameter in each.named_parameters() if parameter.requires_grad] == ["mixes.0.gamma"]
    assert not elmo.Elmo.from_pretrained(tmp_path / "layer", 1, top_only=False).mixes[0].top_only
