import numpy as np
import pytest
import torch

from bridge import batch_of, load
from elmo.config import BiLMConfig
from elmo.nn.bilm import BiLM
from elmo.schema import from_mapping
from make_bilm_hdf5 import Options, make_weights
from oracle import Oracle, encode_sentence

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
SIZES = {  # cell, projection, highways: parameters, without the mask's row of zeros
    "original": (4096, 512, 2, 93_600_848),
    "medium": (2048, 256, 1, 28_027_728),
    "small": (1024, 128, 1, 13_593_296),
}
SENTENCES = [["Pretty", "Bird", "is", "a", "play", "."], ["Yes"]]


def options_of(size: str) -> Options:
    cell, projection, highways, _ = SIZES[size]
    return {
        "lstm": {
            "dim": cell,
            "projection_dim": projection,
            "n_layers": 2,
            "cell_clip": 3,
            "proj_clip": 3,
            "use_skip_connections": True,
        },
        "char_cnn": {
            "embedding": {"dim": 16},
            "filters": FILTERS,
            "n_highway": highways,
            "n_characters": 262,
            "max_characters_per_token": 50,
            "activation": "relu",
        },
    }


def config_of(size: str) -> BiLMConfig:
    return from_mapping(BiLMConfig, options_of(size), "tests")


@pytest.mark.parametrize("size", SIZES)
def test_number_of_parameters(size: str) -> None:
    """Parameters are counted from the equations; 93.6 M, 28.0 M and 13.6 M are the published figures."""
    cell, projection, highways, stated = SIZES[size]
    features = sum(count for _, count in FILTERS)
    counted = 261 * 16
    counted += sum(width * 16 * count + count for width, count in FILTERS)
    counted += highways * 2 * (features * features + features)
    counted += features * projection + projection
    counted += 2 * 2 * (2 * projection * 4 * cell + 4 * cell + cell * projection)
    assert counted == stated
    with torch.device("meta"):
        bilm = BiLM(config_of(size))
    assert sum(parameter.numel() for parameter in bilm.parameters()) == counted + 16


@pytest.mark.parametrize("size", ["small", pytest.param("original", marks=pytest.mark.slow)])
def test_runs_forward_and_backward(size: str) -> None:
    """Every weight gets a finite gradient; vectors have the published width."""
    torch.manual_seed(0)
    bilm = BiLM(config_of(size))
    layers, state = bilm(*batch_of(SENTENCES))
    assert layers.shape == (3, 2, 8, 2 * SIZES[size][1])
    assert state[0].cell.shape == (2, 2, SIZES[size][0])
    layers.square().mean().backward()
    for name, parameter in bilm.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("size", ["small", pytest.param("original", marks=pytest.mark.slow)])
def test_matches_the_oracle(size: str) -> None:
    """Sums over 2048 features and 4096 cells round to a few 1e-6 in float32, for vectors of order 1."""
    options = options_of(size)
    weights = make_weights(options)
    bilm = BiLM(config_of(size))
    load(bilm, weights)
    with torch.inference_mode():
        layers, _ = bilm(*batch_of(SENTENCES))
    oracle = Oracle(weights, options)
    for row, sentence in enumerate(SENTENCES):
        wanted, _ = oracle.row(encode_sentence(sentence))
        np.testing.assert_allclose(layers[:, row, : wanted.shape[1]].numpy(), wanted, atol=2e-5, rtol=0)
