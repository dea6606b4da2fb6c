import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bridge import batch_of, build, state_of
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.lstm import LSTMState
from make_bilm_hdf5 import CHANGES
from oracle import encode_sentence

VARIANTS = [variant for variant in CHANGES if variant not in ("short_words", "softmax", "counts_261")]
SENTENCES = [
    ["A", "play", "opened", "on", "Broadway", "last", "night", "."],
    [],
    ["Nice", "!"],
    ["naïve", "日本語", "\0", "", "x" * 70, "<S>", "<UNK>"],
    ["ok"],
]
words = st.lists(st.one_of(st.sampled_from(["the", "play", ".", "Ünïcode"]), st.text(max_size=12)), max_size=5)
batches = st.lists(words, min_size=1, max_size=4)


def assert_layers(found: torch.Tensor, row: int, wanted: np.ndarray, tolerance: float) -> None:
    length = wanted.shape[1]
    np.testing.assert_allclose(found[:, row, :length].detach().numpy(), wanted, atol=tolerance, rtol=0)
    assert not found[:, row, length:].any(), "padding holds zeros"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["double", "single"]
)
def test_all_layers_match_the_oracle(variant: str, dtype: torch.dtype, tolerance: float) -> None:
    """Tolerances are rounding: vectors are of order 1, and float32 errors grow over dozens of products in a layer."""
    bilm, oracle = build(variant, dtype)
    layers, after = bilm(*batch_of(SENTENCES, extra=2))
    wanted, states = oracle.batch([encode_sentence(sentence) for sentence in SENTENCES])
    assert layers.shape == (
        bilm.config.num_layers,
        len(SENTENCES),
        max(map(len, SENTENCES)) + 4,
        bilm.config.width,
    )
    for row, rows_layers in enumerate(wanted):
        assert_layers(layers, row, rows_layers, tolerance)
    assert_states(after, state_of(states, dtype), tolerance)


def test_two_losses_of_one_batch_add_their_gradients() -> None:
    """Each has a backward pass of its own, which must not write over the gradients of the other."""
    bilm, _ = build("base", torch.float32)
    layers, _ = bilm(*batch_of(SENTENCES))
    losses, parameters = (layers[0, 0, 1].sum(), layers[-1, 0, 2].square().sum()), list(bilm.parameters())
    wanted = torch.autograd.grad(losses[0] + losses[1], parameters, retain_graph=True)
    first = torch.autograd.grad(losses[0], parameters, retain_graph=True, materialize_grads=True)
    kept = [gradient.clone() for gradient in first]
    for loss in losses:
        loss.backward(retain_graph=True)
    for parameter, gradient, copy, whole in zip(parameters, first, kept, wanted, strict=True):
        assert torch.equal(gradient, copy)
        torch.testing.assert_close(parameter.grad, whole)


@pytest.mark.gpu
def test_the_gpu_gives_the_same() -> None:
    """Layers, state and gradients agree in float64, in which the GPU's sums differ by rounding alone."""
    bilm, oracle = build()
    characters, tokens, lengths = batch_of(SENTENCES)
    bilm(characters, tokens, lengths)[0].square().sum().backward()
    wanted_gradients = [parameter.grad.clone() for parameter in bilm.parameters() if parameter.grad is not None]
    bilm.zero_grad()
    bilm.cuda()
    layers, after = bilm(characters.cuda(), tokens.cuda(), lengths)
    assert layers.is_cuda
    wanted, states = oracle.batch([encode_sentence(sentence) for sentence in SENTENCES])
    for row, rows_layers in enumerate(wanted):
        assert_layers(layers.cpu(), row, rows_layers, 1e-10)
    on_cpu = tuple(LSTMState(part.hidden.cpu(), part.cell.cpu()) for part in after)
    assert_states(on_cpu, state_of(states), 1e-10)
    layers.square().sum().backward()
    for parameter, gradient in zip(bilm.parameters(), wanted_gradients, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.cpu(), gradient, atol=1e-9, rtol=0)


def assert_states(found: BiLMState, wanted: BiLMState, tolerance: float) -> None:
    assert len(found) == len(wanted)
    for direction, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(direction.hidden, expected.hidden, atol=tolerance, rtol=0)
        torch.testing.assert_close(direction.cell, expected.cell, atol=tolerance, rtol=0)


@pytest.mark.parametrize("variant", ["base", "no_projection", "one_direction", "no_skip_connections"])
def test_carried_state_matches_the_oracle(variant: str) -> None:
    """Row i continues from row i of the previous batch, in both directions, whatever the rows' lengths."""
    bilm, oracle = build(variant)
    state, states = None, None
    for shift in range(4):
        sentences = SENTENCES[shift:] + SENTENCES[:shift]
        layers, state = bilm(*batch_of(sentences), state)
        wanted, states = oracle.batch([encode_sentence(sentence) for sentence in sentences], states)
        for row, rows_layers in enumerate(wanted):
            assert_layers(layers, row, rows_layers, 1e-10)
    assert_states(state, state_of(states), 1e-10)


def test_a_row_without_tokens_keeps_its_state() -> None:
    bilm, _ = build()
    characters, tokens, lengths = batch_of(SENTENCES)
    _, before = bilm(characters, tokens, lengths)
    lengths[1] = lengths[4] = 0
    layers, after = bilm(characters, tokens, lengths, before)
    assert not layers[:, [1, 4]].any()
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old.hidden[:, [1, 4]], new.hidden[:, [1, 4]])
        assert torch.equal(old.cell[:, [1, 4]], new.cell[:, [1, 4]])
        assert not torch.equal(old.hidden[:, 0], new.hidden[:, 0])


@pytest.mark.parametrize("longest", [0, 3])
def test_a_batch_without_any_token(longest: int) -> None:
    bilm, _ = build()
    characters, _, _ = batch_of(SENTENCES)
    state = bilm.initial_state(2)
    tokens, lengths = torch.zeros(2, longest, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    layers, after = bilm(characters, tokens, lengths, state)
    assert layers.shape == (3, 2, longest, 12)
    assert not layers.any()
    assert_states(after, state, 0)


def test_values_at_padding_do_not_matter() -> None:
    bilm, _ = build()
    characters, tokens, lengths = batch_of(SENTENCES, extra=1)
    padding = torch.arange(tokens.shape[1]) >= lengths[:, None]
    other = torch.where(padding, torch.randint(len(characters), tokens.shape), tokens)
    assert torch.equal(bilm(characters, tokens, lengths)[0], bilm(characters, other, lengths)[0])


@given(batches, st.integers(0, 3), st.data())
def test_batching_order_and_padding_change_nothing(sentences: list[list[str]], extra: int, data: st.DataObject) -> None:
    """From zero state, a sentence has the same vectors alone and in any company, order and padding.

    Only float64 rounding differs, because sums over another number of rows may be in another order.
    """
    bilm, _ = build("base")
    order = data.draw(st.permutations(range(len(sentences))))
    together, _ = bilm(*batch_of([sentences[i] for i in order], extra))
    for row, i in enumerate(order):
        alone, _ = bilm(*batch_of([sentences[i]]))
        assert_layers(together, row, alone[:, 0].detach().numpy(), 1e-12)


@given(batches, st.integers(1, 3))
def test_batch_size_changes_nothing(sentences: list[list[str]], size: int) -> None:
    bilm, _ = build("base")
    together, _ = bilm(*batch_of(sentences))
    for start in range(0, len(sentences), size):
        part, _ = bilm(*batch_of(sentences[start : start + size]))
        T = part.shape[2]
        torch.testing.assert_close(part, together[:, start : start + size, :T], atol=1e-12, rtol=0)


def test_the_future_reaches_only_the_backward_half_and_the_past_only_the_forward_half() -> None:
    bilm, _ = build()
    first, second = ["a", "b", "c", "d", "e"], ["a", "b", "X", "d", "e"]
    (one, _), (two, _) = bilm(*batch_of([first])), bilm(*batch_of([second]))
    same = (one - two).abs().amax(dim=1) < 1e-12  # (L, T, D); the changed word is token 3 of 7
    half = bilm.config.width // 2
    assert same[:, :3, :half].all()
    assert same[:, 4:, half:].all()
    assert not same[1:, 3:, :half].any(dim=-1).all()
    assert (~same[1:, 4:, :half]).any(dim=-1).all()
    assert (~same[1:, :3, half:]).any(dim=-1).all()


def test_layer_0_is_the_token_vector_twice() -> None:
    bilm, oracle = build()
    layers, _ = bilm(*batch_of([["word"]]))
    vectors = oracle.token_vectors(encode_sentence(["word"]))
    np.testing.assert_allclose(layers[0, 0].detach().numpy(), np.hstack([vectors, vectors]), atol=1e-12)


@pytest.mark.parametrize("variant", ["base", "one_direction"])
def test_predictors_let_each_direction_read_tokens_of_its_own(variant: str) -> None:
    """Training draws forward and backward streams independently. Each output is the oracle's top layer of its own text,
    at the place that `positions` gives.
    """
    bilm, oracle = build(variant)
    characters, forward, lengths = batch_of(SENTENCES)
    backward = (forward + 3) % len(characters)
    texts = [forward, backward][: len(bilm.directions)]
    tops, positions, after = bilm.predictors(characters, texts, lengths, bilm.initial_state(len(SENTENCES)))
    assert len(tops) == len(positions) == len(after) == len(texts)
    for direction, (text, top, position) in enumerate(zip(texts, tops, positions, strict=True)):
        assert len(top) == len(position) == lengths.sum()
        found = torch.full((*text.shape, 6), torch.nan, dtype=torch.float64).flatten(0, 1)
        found[position] = top.detach()
        found = found.unflatten(0, text.shape)
        for row, length in enumerate(lengths.tolist()):
            layers, _ = oracle.row(characters[text[row, :length]].numpy())
            wanted = layers[-1][:, 6 * direction : 6 * (direction + 1)]
            np.testing.assert_allclose(found[row, :length].numpy(), wanted, atol=1e-10, rtol=0)
            assert found[row, length:].isnan().all()


def test_streams_cut_into_pieces_give_what_the_whole_gives() -> None:
    """Training carries the state from piece to piece. Backward, the first piece is the end of the text."""
    bilm, _ = build()
    characters, tokens, _ = batch_of([f"w{i} common {i % 3}".split() for i in range(6)])
    text = tokens.flatten()[:24].unflatten(0, (2, 12))
    lengths = torch.tensor([12, 12])
    [forward, backward], _, whole = bilm.predictors(characters, [text, text], lengths, bilm.initial_state(2))
    state = bilm.initial_state(2)
    pieces = []
    for start in range(0, 12, 4):
        end = 12 - start
        tops, _, state = bilm.predictors(
            characters, [text[:, start : start + 4], text[:, end - 4 : end]], torch.tensor([4, 4]), state
        )
        pieces.append(tops)
    torch.testing.assert_close(torch.cat([piece[0] for piece in pieces]), forward, atol=1e-12, rtol=0)
    torch.testing.assert_close(torch.cat([piece[1] for piece in pieces]), backward, atol=1e-12, rtol=0)
    assert_states(state, whole, 1e-12)


def test_gradients_reach_every_weight() -> None:
    bilm, _ = build()
    layers, _ = bilm(*batch_of(SENTENCES))
    layers.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in bilm.parameters())


def test_gradients_match_finite_differences_through_everything() -> None:
    """Gradients of character vectors and of each LSTM's weights are compared in random directions."""
    bilm, _ = build("tanh")  # relu's kinks would spoil the differences
    batch = batch_of(SENTENCES)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(bilm(*batch)[0].shape, generator=generator, dtype=torch.float64)

    def loss(model: BiLM) -> torch.Tensor:
        return (model(*batch)[0] * weights).sum()

    loss(bilm).backward()
    for name in ("char_encoder.embedding.weight", "forward_lstm.layers.0.weight_ih", "backward_lstm.layers.1.bias"):
        weight = bilm.get_parameter(name)
        assert weight.grad is not None
        direction = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        direction[0] = 0 if "embedding" in name else direction[0]
        step, values = 1e-7, []
        for sign in (1, -1):
            with torch.no_grad():
                weight += sign * step * direction
                values.append(loss(bilm).item())
                weight -= sign * step * direction
        numeric = (values[0] - values[1]) / (2 * step)
        assert (weight.grad * direction).sum().item() == pytest.approx(numeric, rel=1e-4, abs=1e-5), name
