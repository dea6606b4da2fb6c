from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from bridge import build, make_config
from elmo.errors import ElmoError
from elmo.formats.elmo import batch_to_ids
from elmo.nn.bilm import BiLM
from elmo.nn.elmo import ElmoModule
from oracle import Array, Oracle, encode, encode_sentence, scalar_mix

SENTENCES = [["A", "new", "play", "opened", "."], ["Hi"], [], ["naïve", "日本語", "x" * 60]]
TOKENS, MASK = 5, [[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0]]


def ids_of(sentences: Sequence[Sequence[str]]) -> torch.Tensor:
    """Return character ids (B, T, C) without boundaries, with zeros at padding."""
    ids = np.zeros((len(sentences), max(map(len, sentences)), 50), dtype=np.int64)
    for row, sentence in enumerate(sentences):
        for step, word in enumerate(sentence):
            ids[row, step] = encode(word)
    return torch.from_numpy(ids)


def oracle_layers(oracle: Oracle, sentences: Sequence[Sequence[str]]) -> list[Array]:
    """Return all layers of each sentence, including its boundaries."""
    return oracle.batch([encode_sentence(sentence) for sentence in sentences])[0]


def make(bilm: BiLM, num_output_representations: int, **options: Any) -> ElmoModule:
    """Make the module, with its mixes, in float64."""
    return ElmoModule(bilm, num_output_representations, **options).double()


def outputs(module: ElmoModule, ids: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    found = module(ids)
    assert set(found) == {"elmo_representations", "mask"}
    return found["elmo_representations"], found["mask"]


def test_gives_the_mean_of_the_oracles_layers_without_boundaries() -> None:
    """A new ELMo layer has equal weights and gamma 1, removes `<S>` and `</S>`, and gives zeros at padding."""
    bilm, oracle = build()
    [found], mask = outputs(make(bilm, 1, dropout=0.0), ids_of(SENTENCES))
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[bool(x) for x in row] for row in MASK]
    assert found.shape == (4, TOKENS, 12)
    for row, layers in enumerate(oracle_layers(oracle, SENTENCES)):
        wanted = np.zeros((TOKENS, 12))
        wanted[: len(SENTENCES[row])] = layers.mean(axis=0)[1:-1]
        np.testing.assert_allclose(found[row].detach().numpy(), wanted, atol=1e-12, rtol=0)


def test_keeps_boundaries_when_asked() -> None:
    bilm, oracle = build()
    [found], mask = outputs(make(bilm, 1, dropout=0.0, keep_sentence_boundaries=True), ids_of(SENTENCES))
    assert mask.sum(dim=1).tolist() == [7, 3, 2, 5]
    assert found.shape == (4, TOKENS + 2, 12)
    for row, layers in enumerate(oracle_layers(oracle, SENTENCES)):
        length = len(SENTENCES[row]) + 2
        np.testing.assert_allclose(found[row, :length].detach().numpy(), layers.mean(axis=0), atol=1e-12, rtol=0)
        assert not found[row, length:].any()


def test_layer_norm_counts_the_boundaries() -> None:
    """AllenNLP mixes before it removes boundaries, so that these are part of mean and variance."""
    bilm, oracle = build()
    [found], mask = outputs(make(bilm, 1, dropout=0.0, do_layer_norm=True), ids_of(SENTENCES))
    layers = np.zeros((3, 4, TOKENS + 2, 12))
    bounded = np.zeros((4, TOKENS + 2), dtype=bool)
    for row, sentence in enumerate(oracle_layers(oracle, SENTENCES)):
        layers[:, row, : sentence.shape[1]] = sentence
        bounded[row, : sentence.shape[1]] = True
    wanted = scalar_mix(layers, np.zeros(3), mask=bounded)[:, 1:-1] * mask.numpy()[:, :, None]
    np.testing.assert_allclose(found.detach().numpy(), wanted, atol=1e-11, rtol=0)


def test_several_representations_come_from_one_run_of_the_bilm() -> None:
    """All representations are equal at first, and each has weights of its own."""
    bilm, oracle = build()
    module = make(bilm, 3, dropout=0.0)
    runs = []
    bilm.register_forward_hook(lambda *_: runs.append(1))
    found, _ = outputs(module, ids_of(SENTENCES))
    assert len(runs) == 1
    assert torch.equal(found[0], found[1])
    with torch.no_grad():
        module.mixes[1].scores.copy_(torch.tensor([0.0, 1.0, -1.0]))
        module.mixes[2].gamma.fill_(2.0)
    found, _ = outputs(module, ids_of(SENTENCES))
    layers = oracle_layers(oracle, SENTENCES)[0][:, 1:-1]
    for representation, scores, gamma in zip(found, ([0, 0, 0], [0, 1, -1], [0, 0, 0]), (1, 1, 2), strict=True):
        wanted = scalar_mix(layers, np.array(scores, dtype=float), gamma)
        np.testing.assert_allclose(representation[0].detach().numpy(), wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize("scores", [[0.5, -1.0, 2.0], [0.0, 0.0, 0.0]])
def test_given_scores_are_used_before_the_softmax_and_frozen(scores: list[float]) -> None:
    bilm, oracle = build()
    module = make(bilm, 2, dropout=0.0, scalar_mix_parameters=scores)
    found, _ = outputs(module, ids_of(SENTENCES))
    wanted = scalar_mix(oracle_layers(oracle, SENTENCES)[0][:, 1:-1], np.array(scores))
    for representation in found:
        np.testing.assert_allclose(representation[0].detach().numpy(), wanted, atol=1e-12, rtol=0)
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_top_only_is_the_top_layer() -> None:
    bilm, oracle = build()
    [found], _ = outputs(make(bilm, 1, dropout=0.0, top_only=True), ids_of(SENTENCES))
    wanted = oracle_layers(oracle, SENTENCES)[0][-1][1:-1]
    np.testing.assert_allclose(found[0].detach().numpy(), wanted, atol=1e-12, rtol=0)


def test_dropout_falls_on_each_representation_in_training_only() -> None:
    """Kept numbers are scaled by 1 / (1 - p). About half of 108 are dropped, independently in each representation."""
    torch.manual_seed(0)
    bilm, _ = build()
    module = make(bilm, 2, dropout=0.5)
    module.eval()
    [plain, _], mask = outputs(module, ids_of(SENTENCES))
    module.train()
    (first, second), _ = outputs(module, ids_of(SENTENCES))
    for found in (first, second):
        kept = found != 0
        torch.testing.assert_close(found[kept], 2 * plain[kept], atol=1e-12, rtol=0)
        assert 0.3 < kept[mask].double().mean() < 0.7
    assert not torch.equal(first != 0, second != 0)


def test_the_frozen_bilm_gets_no_gradient_and_the_mix_does() -> None:
    bilm, _ = build()
    module = make(bilm, 1, dropout=0.0)
    outputs(module, ids_of(SENTENCES))[0][0].square().sum().backward()
    assert all(parameter.grad is None for parameter in bilm.parameters())
    assert module.mixes[0].scores.grad is not None
    assert module.mixes[0].scores.grad.any()
    assert module.mixes[0].gamma.grad is not None


def test_requires_grad_trains_the_bilm() -> None:
    bilm, _ = build()
    module = make(bilm, 1, dropout=0.0, requires_grad=True)
    outputs(module, ids_of(SENTENCES))[0][0].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in bilm.parameters())


def test_penalty_is_the_sum_over_mixes() -> None:
    bilm, _ = build()
    module = make(bilm, 2)
    with torch.no_grad():
        module.mixes[0].scores.copy_(torch.tensor([1.0, 2.0, 0.0]))
        module.mixes[1].scores.copy_(torch.tensor([0.0, 0.0, 3.0]))
    assert module.penalty(0.5).item() == pytest.approx(7.0)


def test_takes_batches_of_batches() -> None:
    """AllenNLP's fields may nest: (2, 2, T, C) gives what the flat (4, T, C) gives."""
    bilm, _ = build()
    module = make(bilm, 2, dropout=0.0)
    ids = ids_of(SENTENCES)
    flat, flat_mask = outputs(module, ids)
    nested, nested_mask = outputs(module, ids.unflatten(0, (2, 2)))
    assert nested[1].shape == (2, 2, TOKENS, 12)
    assert nested_mask.shape == (2, 2, TOKENS)
    assert torch.equal(nested_mask.flatten(0, 1), flat_mask)
    torch.testing.assert_close(nested[1].flatten(0, 1), flat[1], atol=1e-12, rtol=0)


@pytest.mark.parametrize("longest", [0, 2])
def test_sentences_without_tokens(longest: int) -> None:
    bilm, _ = build()
    [found], mask = outputs(make(bilm, 1, do_layer_norm=True), torch.zeros(2, longest, 50, dtype=torch.long))
    assert torch.equal(found, torch.zeros(2, longest, 12, dtype=found.dtype))
    assert not mask.any()


@pytest.mark.parametrize("shape", [(0, 3, 50), (2, 0, 3, 50)])
def test_a_batch_without_sentences_has_empty_results(shape: tuple[int, ...]) -> None:
    bilm, _ = build()
    [found], mask = outputs(make(bilm, 1), torch.zeros(*shape, dtype=torch.long))
    assert (found.shape, mask.shape) == ((*shape[:-1], 12), shape[:-1])


def test_leaves_its_input_alone() -> None:
    bilm, _ = build()
    ids = ids_of(SENTENCES)
    kept = ids.clone()
    make(bilm, 1)(ids)
    assert torch.equal(ids, kept)


def test_without_state_the_same_sentence_has_the_same_vectors() -> None:
    bilm, _ = build()
    module = make(bilm, 1, dropout=0.0)
    (first,), _ = outputs(module, ids_of(SENTENCES))
    (second,), _ = outputs(module, ids_of(SENTENCES))
    assert torch.equal(first, second)


def test_stateful_carries_rows_as_the_published_toolkits_do() -> None:
    """Row i continues from row i. A smaller batch leaves the states of the other rows as they were, and a larger one
    starts its new rows from zeros. `reset_state` forgets all states.
    """
    bilm, oracle = build()
    module = make(bilm, 1, dropout=0.0, stateful=True)
    batches = [SENTENCES[4 - size :] for size in (3, 1, 4, 2)]
    for sentences, (layers, _) in zip(batches, oracle.carry(batches), strict=True):
        [found], _ = outputs(module, ids_of(sentences))
        for row, wanted in enumerate(layers):
            length = wanted.shape[1] - 2
            np.testing.assert_allclose(
                found[row, :length].detach().numpy(), wanted.mean(axis=0)[1:-1], atol=1e-12, rtol=0
            )
    module.reset_state()
    [found], _ = outputs(module, ids_of(SENTENCES))
    wanted = oracle_layers(oracle, SENTENCES)[0].mean(axis=0)[1:-1]
    np.testing.assert_allclose(found[0].detach().numpy(), wanted, atol=1e-12, rtol=0)


def test_carried_state_holds_no_graph() -> None:
    """If it held one, each batch's backward pass would run through all earlier batches."""
    bilm, _ = build()
    module = make(bilm, 1, dropout=0.0, requires_grad=True, stateful=True)
    for _ in range(2):
        outputs(module, ids_of(SENTENCES))[0][0].sum().backward()


@pytest.mark.parametrize("variant", ["one_direction", "one_layer", "three_layers", "short_words"])
def test_other_shapes_of_bilm(variant: str) -> None:
    bilm, oracle = build(variant)
    room = bilm.config.char_cnn.max_characters_per_token
    ids = torch.from_numpy(np.stack([encode(word, room) for word in ["an", "other", "biLM"]]))[None]
    module = make(bilm, 1, dropout=0.0)
    [found], _ = outputs(module, ids)
    layers, _ = oracle.row(encode_sentence(["an", "other", "biLM"], room))
    assert module.output_dim == found.shape[-1] == layers.shape[-1]
    np.testing.assert_allclose(found[0].detach().numpy(), layers.mean(axis=0)[1:-1], atol=1e-12, rtol=0)


# --- words by number

VOCABULARY = ["@@PADDING@@", "A", "new", "play", "opened", ".", "Hi", "naïve", "日本語", "x" * 60]
WORD_IDS = torch.tensor([[VOCABULARY.index(w) if w else 0 for w in [*s, *[""] * (TOKENS - len(s))]] for s in SENTENCES])


def word_characters() -> torch.Tensor:
    return torch.from_numpy(np.stack([encode(word) for word in [*VOCABULARY, "<S>", "</S>"]]))


def encoder_runs(bilm: BiLM) -> list[int]:
    """Return a list to which each later run of the char encoder adds the number of its words."""
    runs: list[int] = []
    bilm.char_encoder.register_forward_hook(lambda _, inputs, __: runs.append(len(inputs[0])))
    return runs


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"keep_sentence_boundaries": True}, {"do_layer_norm": True}, {"stateful": True}]
)
def test_words_by_number_are_the_words_by_characters(requires_grad: bool, options: dict[str, Any]) -> None:
    """Vectors agree up to float64 rounding, batch after batch, including padding and mask. `inputs` is ignored."""
    bilm, _ = build()
    module = make(bilm, 2, dropout=0.0, requires_grad=requires_grad, word_characters=word_characters(), **options)
    other = make(bilm, 2, dropout=0.0, requires_grad=requires_grad, **options)
    for order in ([0, 1, 2, 3], [3, 0], [1, 2, 0]):
        wanted, wanted_mask = outputs(other, ids_of(SENTENCES)[order])
        output = module(torch.empty(0), WORD_IDS[order])
        assert torch.equal(output["mask"], wanted_mask)
        for representation, expected in zip(output["elmo_representations"], wanted, strict=True):
            torch.testing.assert_close(representation, expected, atol=1e-12, rtol=0)


def test_cached_words_are_encoded_once() -> None:
    """The first call encodes all words and both boundaries. No later call encodes any, not even in training."""
    bilm, _ = build()
    module = make(bilm, 1, word_characters=word_characters())
    runs = encoder_runs(bilm)
    for _ in range(3):
        module(ids_of(SENTENCES), WORD_IDS)["elmo_representations"][0].sum().backward()
    assert runs == [len(VOCABULARY) + 2]


def test_words_cached_under_autocast_are_exact() -> None:
    """Under autocast, the first call rounds what it computes, but not the vectors that are kept."""
    bilm, _ = build()
    module = make(bilm, 1, dropout=0.0, word_characters=word_characters()).float()
    with torch.autocast("cpu", torch.bfloat16):
        module(ids_of(SENTENCES), WORD_IDS)
    by_number = module(ids_of(SENTENCES), WORD_IDS)["elmo_representations"][0]
    by_characters = module(ids_of(SENTENCES))["elmo_representations"][0]
    torch.testing.assert_close(by_number, by_characters, rtol=0, atol=1e-6)


def test_a_char_encoder_that_is_trained_is_not_cached() -> None:
    """Gradients are those of the same batch by characters, and each call runs the encoder once."""
    gradients = []
    for words in (None, WORD_IDS):
        bilm, _ = build()
        module = make(bilm, 1, dropout=0.0, requires_grad=True, word_characters=word_characters())
        runs = encoder_runs(bilm)
        module(ids_of(SENTENCES), words)["elmo_representations"][0].square().sum().backward()
        gradients.append([parameter.grad for parameter in bilm.parameters()])
        assert len(runs) == 1
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-10, rtol=0)


def test_the_cache_follows_the_weights() -> None:
    """If weights are loaded, changed in place, or cast, the vectors are never those of the old weights."""
    bilm, _ = build()
    module = make(bilm, 1, dropout=0.0, word_characters=word_characters())
    ids = ids_of(SENTENCES)

    def check(tolerance: float = 1e-12) -> None:
        (wanted,), _ = outputs(module, ids)
        torch.testing.assert_close(module(ids, WORD_IDS)["elmo_representations"][0], wanted, atol=tolerance, rtol=0)

    check()
    module.bilm.load_state_dict(build(seed=1)[0].state_dict())
    check()
    with torch.no_grad():
        module.bilm.char_encoder.embedding.weight.mul_(0.5)
    check()
    module.float()
    check(1e-6)


@pytest.mark.parametrize("words", [None, WORD_IDS], ids=["by characters", "by number"])
def test_the_cache_forgets_what_a_fused_optimizer_changed(words: torch.Tensor | None) -> None:
    """Torch does not count such changes. The old vectors came back when the biLM was no longer trained."""
    module = make(build()[0], 1, dropout=0.0, word_characters=word_characters())
    ids = ids_of(SENTENCES)
    before = module(ids, WORD_IDS)["elmo_representations"][0]
    module.bilm.requires_grad_(True)
    optimizer = torch.optim.SGD(module.bilm.parameters(), lr=0.1, fused=True)
    module(ids, words)["elmo_representations"][0].square().sum().backward()
    optimizer.step()
    module.bilm.requires_grad_(False)
    (wanted,), _ = outputs(module, ids)
    assert not torch.equal(wanted, before)
    torch.testing.assert_close(module(ids, WORD_IDS)["elmo_representations"][0], wanted, atol=1e-12, rtol=0)


def test_the_cache_is_no_part_of_the_state_dict() -> None:
    bilm, _ = build()
    cached, plain = make(bilm, 1, word_characters=word_characters()), make(bilm, 1)
    assert cached.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("number", [len(VOCABULARY), len(VOCABULARY) + 1, 10**6, -1])
def test_numbers_of_no_word_fall_back_to_characters(number: int) -> None:
    """One such number is enough for the whole batch. This includes the numbers of the boundaries' rows."""
    bilm, _ = build()
    module = make(bilm, 1, dropout=0.0, word_characters=word_characters())
    ids = ids_of(SENTENCES)
    words = torch.where(WORD_IDS == 3, number, WORD_IDS)
    assert (words == number).any()
    assert torch.equal(module(ids, words)["elmo_representations"][0], module(ids)["elmo_representations"][0])


@pytest.mark.parametrize(("dtype", "num_words"), [(torch.int8, 128), (torch.uint8, 256)])
def test_numbers_of_words_may_have_few_bits(dtype: torch.dtype, num_words: int) -> None:
    """The number of all words has no room in them: it would become -128 or 0, and no word would be known."""
    words = word_characters()
    others = words[1:2].expand(num_words - len(VOCABULARY), -1)
    module = make(build()[0], 1, dropout=0.0, word_characters=torch.cat([words[:-2], others, words[-2:]]))
    found, wanted = (module(None, ids)["elmo_representations"][0] for ids in (WORD_IDS.to(dtype), WORD_IDS))
    assert torch.equal(found, wanted)


def test_without_words_numbers_are_not_looked_at() -> None:
    bilm, _ = build()
    module = make(bilm, 1, dropout=0.0)
    ids = ids_of(SENTENCES)
    assert torch.equal(module(ids, WORD_IDS + 5)["elmo_representations"][0], module(ids)["elmo_representations"][0])


def test_batches_of_batches_of_words() -> None:
    bilm, _ = build()
    module = make(bilm, 1, dropout=0.0, word_characters=word_characters())
    flat = module(torch.empty(0), WORD_IDS)
    nested = module(torch.empty(0), WORD_IDS.int().unflatten(0, (2, 2)))
    assert nested["mask"].shape == (2, 2, TOKENS)
    assert torch.equal(nested["elmo_representations"][0].flatten(0, 1), flat["elmo_representations"][0])


def test_requires_grad_none_leaves_the_bilm_as_it_is() -> None:
    bilm, _ = build()
    bilm.char_encoder.requires_grad_(False)
    module = make(bilm, 1, requires_grad=None)
    assert not any(parameter.requires_grad for parameter in module.bilm.char_encoder.parameters())
    assert all(parameter.requires_grad for parameter in module.bilm.forward_lstm.parameters())


def test_state_carried_from_inference_mode_can_be_trained_on() -> None:
    """Training may continue from the state that an evaluation between two epochs has left."""
    bilm, _ = build()
    module = make(bilm, 1, requires_grad=True, stateful=True)
    with torch.inference_mode():
        module(ids_of(SENTENCES))
    outputs(module, ids_of(SENTENCES))[0][0].sum().backward()


def test_a_carried_state_follows_the_type_of_the_weights() -> None:
    bilm, _ = build()
    module = make(bilm, 1, stateful=True)
    module(ids_of(SENTENCES))
    found, _ = outputs(module.float(), ids_of(SENTENCES))
    assert found[0].dtype == torch.float32


def test_words_are_cached_for_weights_made_in_inference_mode() -> None:
    with torch.inference_mode():
        bilm, _ = build()
        module = make(bilm, 1, dropout=0.0, word_characters=word_characters())
        (found,) = module(torch.empty(0), WORD_IDS)["elmo_representations"]
        (wanted,) = module(ids_of(SENTENCES))["elmo_representations"]
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


def test_ids_are_whole_numbers() -> None:
    bilm, _ = build()
    with pytest.raises(
        ElmoError, match=r"`inputs`: expected whole numbers, the ids of characters, found torch\.float32"
    ):
        make(bilm, 1)(ids_of(SENTENCES).float())
    with pytest.raises(ElmoError, match=r"`inputs`: expected whole numbers, the ids of characters, found torch\.bool"):
        make(bilm, 1)(ids_of(SENTENCES).bool())
    with pytest.raises(ElmoError, match=r"`word_inputs`: expected \(…, T\) whole numbers .* of torch\.bool"):
        make(bilm, 1, word_characters=word_characters())(torch.empty(0), WORD_IDS > 0)


def test_ids_may_have_few_bits() -> None:
    """Those of the boundaries have no room in 8 bits."""
    bilm, _ = build()
    ids = ids_of([["\u0001"]]).clamp(max=255)  # the marks around the word don't matter here
    wanted, _ = outputs(make(bilm, 1, dropout=0.0), ids)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        found, _ = outputs(make(bilm, 1, dropout=0.0), ids.to(dtype))
        assert torch.equal(found[0], wanted[0])


def test_words_of_another_width_are_refused() -> None:
    """Words that `batch_to_ids` cut shorter than the model reads them would silently get other vectors."""
    config = make_config()
    room, layer = config.char_cnn.max_characters_per_token, ElmoModule(BiLM(config), 1)
    with pytest.raises(ElmoError, match=rf"`inputs`: {room - 1} characters per word, but the model reads {room}; make"):
        layer(batch_to_ids([["a", "word"]], room - 1))


def test_a_single_sentence_is_not_a_batch() -> None:
    layer = ElmoModule(BiLM(make_config()), 1)
    with pytest.raises(ElmoError, match=r"`inputs`: expected \(…, T, C\) with a batch axis and C ≥ 3, found \(2, 50\)"):
        layer(batch_to_ids([["a", "word"]])[0])
    with pytest.raises(ElmoError, match=r"^`max_characters`: 2 has no room for a character; use 3 or more$"):
        batch_to_ids([["a"]], 2)
    assert batch_to_ids([["a"]], 3).shape == (1, 1, 3)
    with pytest.raises(ElmoError, match=r"C ≥ 3, found \(1, 2, 1\)"):
        layer(torch.ones(1, 2, 1, dtype=torch.long))


@pytest.mark.parametrize("row", [[0, 1, 1], [1, 0, 1]], ids=["before", "between"])
def test_padding_that_does_not_follow_the_tokens_is_refused(row: list[int]) -> None:
    """It would be read as tokens: what counts is only how many there are."""
    ids = ids_of([["A", "new", "play"], ["A", "new", "play"]])
    ids[1] *= torch.tensor(row).unsqueeze(1)
    with pytest.raises(
        ElmoError, match=r"^`inputs`: a sentence has padding before or between its tokens; put all padding"
    ):
        make(build()[0], 1)(ids)


@pytest.mark.parametrize("inputs", [[["A", "play"]], np.ones((1, 2, 50), np.int64)], ids=["sentences", "an array"])
def test_what_is_no_tensor_is_refused(inputs: Any) -> None:
    bilm, _ = build()
    with pytest.raises(
        ElmoError, match=r"`inputs`: expected a tensor, found (list|ndarray); make it of sentences with elmo"
    ):
        make(bilm, 1)(inputs)


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ([[1, 2]], "`word_inputs`: expected a tensor, found list"),
        (torch.tensor([1, 2]), r"`word_inputs`: expected \(…, T\) whole numbers with a batch axis, found \(2,\) of"),
        (torch.ones(1, 2), r"`word_inputs`: expected .* found \(1, 2\) of torch\.float32"),
    ],
)
def test_what_are_no_numbers_of_words_is_refused(numbers: Any, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make(build()[0], 1)(ids_of([["A", "play"]]), numbers)


@pytest.mark.parametrize(
    ("number", "options", "says"),
    [
        (0, {}, "`num_output_representations`: 0 is not positive"),
        (None, {}, "`num_output_representations`: expected a whole number, found None"),
        (1, {"dropout": 1.5}, r"`dropout`: 1\.5 is not in \[0, 1\)"),
    ],
)
def test_sizes_that_make_no_module_are_refused(number: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make(build()[0], number, **options)


@pytest.mark.parametrize("wrong", [-3, 262, 1161])
def test_ids_of_no_character_are_refused(wrong: int) -> None:
    bilm, _ = build()
    ids = ids_of(SENTENCES)
    ids[0, 0, 1] = wrong
    with pytest.raises(
        ElmoError, match=f"`inputs`: contain the id {wrong}, but the model's characters have the ids 0 to 261"
    ):
        make(bilm, 1)(ids)


def test_a_char_encoder_of_which_a_part_is_trained_is_not_cached() -> None:
    """Vectors of words that are given by number would be kept, and the part would get no gradient."""
    gradients: list[torch.Tensor | None] = []
    for words in (None, WORD_IDS):
        bilm, _ = build()
        bilm.requires_grad_(False)
        projection = bilm.char_encoder.projection.requires_grad_(True)
        module = make(bilm, 1, dropout=0.0, requires_grad=None, word_characters=word_characters())
        module(ids_of(SENTENCES), words)["elmo_representations"][0].square().sum().backward()
        gradients.append(projection.weight.grad)
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=0)
