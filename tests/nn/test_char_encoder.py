import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bridge import build
from comparing import count_calls
from elmo._native import training_kernels
from elmo.nn import char_encoder
from elmo.nn.highway import Highway
from elmo.nn.memory import LayerMemory
from levels import needs_native
from oracle import encode

VARIANTS = ["base", "no_char_projection", "no_highway", "tanh"]
LENGTHS = range(0, 61)  # the last ones are cut at 48 bytes


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("length", LENGTHS)
def test_matches_the_oracle_for_words_of_every_length(variant: str, length: int) -> None:
    """A word that is alone in its batch decides how much padding is convolved; float64 leaves rounding of 1e-15."""
    bilm, oracle = build(variant)
    characters = encode("".join(chr(ord("a") + i % 26) for i in range(length)))[None]
    found = bilm.char_encoder(torch.from_numpy(characters)).detach().numpy()
    np.testing.assert_allclose(found, oracle.token_vectors(characters), atol=1e-12, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_matches_the_oracle_for_words_of_all_lengths_together(variant: str) -> None:
    bilm, oracle = build(variant)
    characters = np.stack([*(encode("é" * (n // 2) + "x" * (n % 2)) for n in LENGTHS), encode("<S>"), encode("</S>")])
    found = bilm.char_encoder(torch.from_numpy(characters)).detach().numpy()
    np.testing.assert_allclose(found, oracle.token_vectors(characters), atol=1e-12, rtol=0)


def test_single_precision_is_within_rounding() -> None:
    """The tolerance allows for sums of a few hundred float32 products of order 1."""
    bilm, oracle = build(dtype=torch.float32)
    characters = np.stack([encode(word) for word in ["a", "supercalifragilistic", "<S>", "\0", "日本語", ""]])
    found = bilm.char_encoder(torch.from_numpy(characters)).detach().numpy()
    np.testing.assert_allclose(found, oracle.token_vectors(characters), atol=2e-6, rtol=0)


@given(st.lists(st.text(max_size=60), min_size=1, max_size=6))
def test_a_words_vector_depends_on_its_characters_alone(words: list[str]) -> None:
    """Neighbours of another length change how many columns of padding are convolved, but never the maxima."""
    bilm, oracle = build()
    characters = np.stack([encode(word) for word in words])
    together = bilm.char_encoder(torch.from_numpy(characters)).detach().numpy()
    np.testing.assert_allclose(together, oracle.token_vectors(characters), atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_takes_any_integer_type(dtype: torch.dtype) -> None:
    bilm, _ = build()
    characters = torch.from_numpy(np.stack([encode("word"), encode("other")]))
    assert torch.equal(bilm.char_encoder(characters.to(dtype)), bilm.char_encoder(characters))


def test_other_word_lengths() -> None:
    """If `max_characters_per_token` isn't 50, words are cut and convolved within that room."""
    bilm, oracle = build("short_words")
    characters = np.stack([encode(word, 12) for word in ["", "a", "abcdefghij", "abcdefghijklmnop"]])
    found = bilm.char_encoder(torch.from_numpy(characters)).detach().numpy()
    np.testing.assert_allclose(found, oracle.token_vectors(characters), atol=1e-12, rtol=0)


def test_ids_that_no_word_of_ours_has() -> None:
    """Programs make ids of their own: padded with zeros, with padding at the start or inside, or drawn at random.

    Each is alone in its batch, since the longest word of one decides how many columns are convolved.
    """
    bilm, oracle = build()
    characters = np.full((6, 50), 261)
    characters[0, 40:45] = range(5, 10)
    characters[1] = [*range(6, 2, -1), *[0] * 46]
    characters[2] = [0] * 10 + [99] + [261] * 39
    characters[3, ::7] = 0
    characters[4] = 0
    characters[5] = np.random.default_rng(0).integers(0, 262, 50)
    found = torch.cat([bilm.char_encoder(word) for word in torch.from_numpy(characters).split(1)]).detach().numpy()
    np.testing.assert_allclose(found, oracle.token_vectors(characters), atol=1e-12, rtol=0)


def test_nan_reaches_the_loss_and_the_gradient() -> None:
    """With NaN, no window equals the maximum. The backward pass must still run, so that the loss ends such a run."""
    bilm, _ = build()
    with torch.no_grad():
        bilm.char_encoder.embedding.weight.fill_(torch.nan)
    loss = bilm.char_encoder(torch.from_numpy(np.stack([encode("w" * 60)]))).sum()
    loss.backward()
    assert loss.isnan()
    gradient = bilm.char_encoder.embedding.weight.grad
    assert gradient is not None
    assert gradient.isnan().any()


def test_the_masks_row_stays_zero_in_training() -> None:
    """Row 0 belongs to no character, and files don't store it."""
    bilm, _ = build()
    characters = torch.from_numpy(np.stack([encode("word"), np.zeros(50, dtype=int)]))
    bilm.char_encoder(characters).sum().backward()
    gradient = bilm.char_encoder.embedding.weight.grad
    assert gradient is not None
    assert not gradient[0].any()
    assert gradient[ord("w") + 1].any()


@pytest.mark.parametrize("types_at_once", [1, 3, 128])
def test_gradients_are_those_of_a_convolution_and_a_maximum(
    types_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch differentiates `conv1d` over all 50 columns; equal windows ("aaaa") share a maximum."""
    monkeypatch.setattr(char_encoder, "TYPES_AT_ONCE", types_at_once)
    bilm, _ = build("no_highway")
    encoder = bilm.char_encoder
    characters = torch.from_numpy(
        np.stack([encode(w) for w in ["aaaa", "<S>", "b", "supercalifragilistic", "ab" * 24]])
    )
    x = encoder.embedding(characters).transpose(1, 2)
    features = torch.cat([convolution(x).max(dim=2).values for convolution in encoder.convolutions], dim=1)
    expected = encoder.projection(char_encoder.ACTIVATIONS[encoder.activation](features))
    weights = torch.linspace(-1, 1, expected.numel(), dtype=expected.dtype).view_as(expected)
    parameters = list(encoder.parameters())
    wanted = torch.autograd.grad((expected * weights).sum(), parameters)
    found = torch.autograd.grad((encoder(characters) * weights).sum(), parameters)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


@needs_native
def test_the_native_encoder_equals_torch(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients agree up to float32 rounding; equal windows ("aaaa") give their gradient to the first.

    The kernels add the gradients of biases word by word, torch adds pairs of sums. Most of these cancel, hence 1e-5.
    """
    bilm, _ = build(dtype=torch.float32)
    words = ["aaaa", "<S>", "b", "", "supercalifragilistic", "ab" * 24, *(f"word{number}" for number in range(150))]
    characters = torch.from_numpy(np.stack([encode(word) for word in words]))
    names = "find_maxima", "add_to_table", "highway_forward", "highway_backward"
    calls = [count_calls(monkeypatch, training_kernels, name) for name in names]
    # This memory held a larger batch, of which nothing may remain.
    memory = [LayerMemory() for _ in range(1 + len(bilm.char_encoder.highways))]
    bilm.char_encoder(characters.repeat(2, 1).flip(1), memory).sum().backward()

    def solve() -> list[torch.Tensor]:
        found = bilm.char_encoder(characters, memory)
        weights = torch.linspace(-1, 1, found.numel()).view_as(found)
        return [found, *torch.autograd.grad((found * weights).sum(), list(bilm.char_encoder.parameters()))]

    native = solve()
    assert all(calls), "torch would be compared with itself"
    monkeypatch.setenv("ELMO_NATIVE", "0")
    for a, b in zip(native, solve(), strict=True):
        assert (a - b).abs().max() <= (1e-5 if a.dim() == 1 else 2e-6) * b.abs().max()


@needs_native
def test_a_native_highway_equals_torchs_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both round products to the 8 bits of bfloat16; the kernels add the biases in float32."""
    torch.manual_seed(0)
    highway, x = Highway(24), torch.randn(50, 24, requires_grad=True)
    calls = count_calls(monkeypatch, training_kernels, "highway_backward")
    results: list[list[torch.Tensor]] = []
    for native in ("1", "0"):
        monkeypatch.setenv("ELMO_NATIVE", native)
        with torch.autocast("cpu", torch.bfloat16):
            found = highway(x)
        weights = torch.linspace(-1, 1, found.numel()).view_as(found)
        results.append([found, *torch.autograd.grad((found * weights).sum(), [x, *highway.parameters()])])
    assert len(calls) == 1, "torch would be compared with itself"
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, atol=2**-6 * theirs.abs().max().item(), rtol=0)


def test_a_highway_rounds_products_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gate is not rounded to the 8 bits of bfloat16, just as the gates of the LSTMs are not."""
    monkeypatch.setenv("ELMO_NATIVE", "0")
    torch.manual_seed(0)
    highway, x = Highway(24), torch.randn(50, 24)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, candidate, gate = highway(x), highway.transform(x).float(), highway.gate(x).float()
        assert torch.equal(found, torch.lerp(x, candidate.relu(), gate.sigmoid()))


@pytest.mark.parametrize(
    ("activation", "deviations"), [("relu", [0.05 / 3**0.5] * 2), ("tanh", [16**-0.5, (3 * 16) ** -0.5])]
)
def test_initial_values_are_the_published_ones(activation: str, deviations: list[float]) -> None:
    """Characters are U(-1, 1); convolutions are U(-.05, .05) before a relu, and N(0, 1/sqrt n) of n inputs before a
    tanh; highways are N(0, 1/sqrt n) with a carry bias of -2 (bilm-tf).

    The standard deviation of n draws is within 4 / sqrt(2 n) of the true one, except once in 15,000 times.
    """
    from elmo.config import CharCNNConfig, CharEmbeddingConfig
    from elmo.nn.char_encoder import CharEncoder

    torch.manual_seed(0)
    config = CharCNNConfig(CharEmbeddingConfig(16), ((1, 40), (3, 60)), n_highway=1, activation=activation)
    values = dict(CharEncoder(config, 50).named_parameters())
    assert not values["embedding.weight"][0].any(), "row 0 belongs to no character"

    def check(name: str, deviation: float) -> None:
        found = values[name].detach().double()
        tolerance = 4 / (2 * found.numel()) ** 0.5
        assert found.std().item() == pytest.approx(deviation, rel=tolerance), name

    check("embedding.weight", 1 / 3**0.5)
    for number, deviation in enumerate(deviations):
        check(f"convolutions.{number}.weight", deviation)
        assert (values[f"convolutions.{number}.weight"].abs().max() <= 0.05) == (activation == "relu")
        assert not values[f"convolutions.{number}.bias"].any()
    check("highways.0.transform.weight", 0.1)
    check("highways.0.gate.weight", 0.1)
    check("projection.weight", 0.1)
    assert (values["highways.0.gate.bias"] == -2).all()
    assert not values["highways.0.transform.bias"].any()
    assert not values["projection.bias"].any()
