"""The layer that task models use: a biLM and one or more scalar mixes of its layers (Peters et al. 2018, sec. 3.3)."""

from collections.abc import Sequence
from typing import TypedDict, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, END_WORD, PADDING, SHORTEST
from elmo.errors import ElmoError
from elmo.nn.bilm import BiLM, BiLMState, TokenEncoder, detach, first_rows, replace_rows, to_device
from elmo.nn.char_encoder import WordCharEncoder
from elmo.nn.scalar_mix import ScalarMix
from elmo.schema import require_positive, require_share, require_whole

WORDS_AT_ONCE = 1024
"""Words of a `WordCache` that are encoded together: few enough for any memory."""

_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class ElmoOptions(TypedDict, total=False):
    """Keyword arguments of `ElmoModule`."""

    requires_grad: bool | None
    do_layer_norm: bool
    dropout: float
    keep_sentence_boundaries: bool
    scalar_mix_parameters: Sequence[float] | None
    top_only: bool
    stateful: bool


class ElmoModule(nn.Module):
    """A biLM with one or more scalar mixes of its layers, all from one run of the biLM.

    Args:
        bilm: The biLM.
        num_output_representations: How many mixes, and so representations, there are.
        requires_grad: Whether the biLM itself is trained. None leaves that as it is.
        do_layer_norm: Whether each layer is normalized before it is mixed (see `normalize_layers`).
        dropout: The dropout probability of the representations.
        keep_sentence_boundaries: Whether the output includes `<S>` and `</S>`, so that T grows by two.
        scalar_mix_parameters: One score for each layer, before the softmax. Giving them freezes the mixes.
        top_only: Whether only the top layer is used.
        stateful: Whether the LSTM state is carried from batch to batch, in training too, as the published toolkits do.
            Without it the same sentence always has the same vectors.
        word_characters: The character ids (V+2, C) of words that `forward` then takes by their numbers. Number 0 is
            padding, whatever word has that row; the last two rows are those of `<S>` and `</S>`.

    Raises:
        ElmoError: If there is no mix, or `dropout` is no probability.

    Source:
        Peters et al. 2018, sec. 3.2 and 3.3.
    """

    def __init__(
        self,
        bilm: BiLM,
        num_output_representations: int,
        *,
        requires_grad: bool | None = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        top_only: bool = False,
        stateful: bool = False,
        word_characters: Tensor | None = None,
    ) -> None:
        super().__init__()
        require_whole("`num_output_representations`", num_output_representations)
        require_positive("`num_output_representations`", num_output_representations)
        require_share("`dropout`", dropout)
        self.bilm = bilm if requires_grad is None else bilm.requires_grad_(requires_grad)
        self.dropout = dropout
        self.keep_sentence_boundaries = keep_sentence_boundaries
        self.stateful = stateful
        self.mixes = nn.ModuleList(
            ScalarMix(
                bilm.config.num_layers,
                top_only=top_only,
                layer_norm=do_layer_norm,
                initial_scores=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            for _ in range(num_output_representations)
        )
        self.words = None if word_characters is None else WordCache(word_characters)
        self._state: BiLMState | None = None

    @property
    def output_dim(self) -> int:
        """The width of every representation, D."""
        return self.bilm.config.width

    def forward(self, inputs: Tensor | None, word_inputs: Tensor | None = None) -> dict[str, list[Tensor] | Tensor]:
        """Compute the contextual vectors of a batch of sentences.

        Args:
            inputs: Character ids (…, T, C) as `batch_to_ids` gives them, zeros at padding. C is the number of
                characters that the model reads per word. It may be None if all of `word_inputs` are known.
            word_inputs: The same tokens as numbers of the words that the module was given, (…, T), zeros at padding.
                If all of them are known, `inputs` is not read. If one is not, or the module has no words, only `inputs`
                is read. The vectors are the same either way.

        Returns:
            `elmo_representations`, a list of (…, T, D) tensors with zeros at padding, and `mask`, (…, T) bool. With
            `keep_sentence_boundaries`, T grows by two.

        Raises:
            ElmoError: If `inputs` has another shape, or padding before or between the tokens of a sentence; or if not
                all words are known and `inputs` is None or the model reads no characters.
        """
        layers, lengths, leading = self._layers(inputs, word_inputs)
        # The mix sees the boundaries, because the statistics of layer norm include them in AllenNLP.
        mask = mask_of(lengths, layers.shape[2])
        representations = [mix(layers, mask) for mix in self.mixes]
        if not self.keep_sentence_boundaries:
            mask = mask_of(lengths - 2, layers.shape[2] - 2)
            representations = [x[:, 1:-1] * mask.unsqueeze(-1) for x in representations]
        dropped = [F.dropout(x, self.dropout, self.training) for x in representations]
        return {
            "elmo_representations": [x.unflatten(0, leading) for x in dropped],
            "mask": mask.unflatten(0, leading),
        }

    def reset_state(self) -> None:
        """Forget the carried state."""
        self._state = None

    def penalty(self, strength: float) -> Tensor:
        """Return the L2 penalty of all mixes, to add to the task's loss; `strength` is the paper's lambda."""
        return torch.stack([mix.penalty(strength) for mix in self.mixes if isinstance(mix, ScalarMix)]).sum()

    def _layers(self, inputs: Tensor | None, word_inputs: Tensor | None) -> tuple[Tensor, Tensor, Sequence[int]]:
        """Return all layers (L+1, B, T+2, D), the lengths (B,) with boundaries, and the axes that B stands for.

        They start from the carried state if there is one, and the state after them is carried if the module does so.
        """
        encoder = self.bilm.token_encoder
        if self.words is not None:
            self.words.follow(encoder)
        if word_inputs is not None:
            require_numbers(word_inputs)
        if self.words is None or word_inputs is None or not self.words.holds(word_inputs):
            inputs = require_batch(inputs)
            leading, characters = inputs.shape[:-2], inputs.flatten(0, -3)
            begin, end = boundary_words(encoder, characters)
            bounded, lengths = add_boundaries(characters, (characters > 0).any(dim=2), begin, end)
            # Padding becomes one more type, whose vector is computed and never read.
            types, tokens = bounded.flatten(0, 1).unique(dim=0, return_inverse=True)
            tokens = tokens.view(bounded.shape[:2])
            run = self.bilm
        else:
            leading, numbers = word_inputs.shape[:-1], word_inputs.flatten(0, -2)
            bounded, lengths = add_boundaries(numbers.long(), numbers > 0, *self.words.boundaries)
            types, tokens = self.words.look_up(bounded, encoder)
            run = self.bilm.contextualize  # which takes the vectors of types
        # The state is not a buffer, so it is not moved or cast with the module.
        weight = next(self.bilm.parameters())
        before = None if self._state is None else to_device(self._state, weight.device, weight.dtype)
        layers, after = run(types, tokens, lengths.cpu(), None if before is None else first_rows(before, len(tokens)))
        if self.stateful:
            # Without its graph: otherwise every batch would lead back to the first one.
            self._state = replace_rows(before, detach(after))
        return layers, lengths, leading


class WordCache(nn.Module):
    """Token vectors of words known beforehand, computed when they are first needed.

    Args:
        characters: The ids of the words, (V+2, C). The last two rows are those of `<S>` and `</S>`. They move with the
            module but are not a part of its state dict.
    """

    characters: Tensor

    def __init__(self, characters: Tensor) -> None:
        super().__init__()
        self.register_buffer("characters", characters, persistent=False)
        self._vectors: Tensor | None = None
        self._made_by: list[tuple[int, int]] = []

    @property
    def boundaries(self) -> tuple[int, int]:
        """The numbers of `<S>` and `</S>`: the two rows after the words."""
        return len(self.characters) - 2, len(self.characters) - 1

    def holds(self, numbers: Tensor) -> bool:
        """Return whether all `numbers` are those of words, or 0 (padding)."""
        numbers = numbers.long()  # compared with a type of few bits, the bound would lose those that don't fit
        return bool(((numbers >= 0) & (numbers < self.boundaries[0])).all())

    def follow(self, encoder: TokenEncoder) -> None:
        """Forget the vectors if the encoder is trained. Each batch calls this, also one of characters."""
        # Torch does not count the changes of fused optimizers, so that `vectors` would not notice them afterwards.
        if is_trained(encoder):
            self._vectors = None

    def vectors(self, encoder: TokenEncoder) -> Tensor:
        """Return the vectors (V+2, P), without gradient.

        They are kept unless the encoder is trained, and computed again after its weights changed, moved or were cast.
        Changes by way of `.data` are not noticed, as torch does not count them, nor are those of a fused optimizer
        while the encoder was trained in another module than this cache.
        """
        # A weight is the same as before if it has the same memory (not moved, cast or replaced) and the same version,
        # which torch counts up with every change in place, such as that of most optimizers or of `load_state_dict`. It
        # counts nothing for weights that were made in inference mode.
        weights = [
            (parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version)  # pyright: ignore[reportPrivateUsage] (torch has no other)
            for parameter in encoder.parameters()
        ]
        self.follow(encoder)
        if self._vectors is not None and weights == self._made_by:
            return self._vectors
        # Without autocast, because the vectors outlast the block in which they were first needed.
        with torch.no_grad(), torch.autocast(self.characters.device.type, enabled=False):
            vectors = torch.cat([encoder(some) for some in self.characters.split(WORDS_AT_ONCE)])
        self._vectors, self._made_by = None if is_trained(encoder) else vectors, weights
        return vectors

    def look_up(self, numbers: Tensor, encoder: TokenEncoder) -> tuple[Tensor, Tensor]:
        """Return vectors (N, P), with gradients if the encoder is trained, and where those of numbers (B, T) are."""
        if not is_trained(encoder):
            return self.vectors(encoder), numbers
        # Cached vectors would have no gradient, and would be out of date after each step.
        used, places = numbers.unique(return_inverse=True)
        return encoder(self.characters[used]), places

    def embed(self, numbers: Tensor, encoder: TokenEncoder) -> Tensor:
        """Return the vectors (B, T, P) of words given as numbers (B, T), with gradients if the encoder is trained."""
        vectors, places = self.look_up(numbers, encoder)
        return F.embedding(places, vectors)


def is_trained(module: nn.Module) -> bool:
    """Return whether any parameter of a module is trained."""
    return any(parameter.requires_grad for parameter in module.parameters())


def add_boundaries(ids: Tensor, is_token: Tensor, begin: Tensor | int, end: Tensor | int) -> tuple[Tensor, Tensor]:
    """Put `<S>` and `</S>` around sentences.

    Args:
        ids: Character ids (B, T, C) or word numbers (B, T), zeros at padding.
        is_token: True at tokens, (B, T) bool.
        begin: The id or ids (C,) of `<S>`.
        end: The id or ids (C,) of `</S>`.

    Returns:
        The ids (B, T+2, C) or (B, T+2), and the new lengths (B,).

    Raises:
        ElmoError: If a sentence has padding before or between its tokens.
    """
    lengths = require_padding_last(is_token)
    # `</S>` follows each sentence's own last token, so that padding stays at the end.
    bounded = F.pad(ids, (*[0] * (2 * ids.dim() - 4), 1, 1))
    bounded[:, 0] = begin
    bounded[torch.arange(len(ids), device=ids.device), lengths + 1] = end
    return bounded, lengths + 2


def require_padding_last(is_token: Tensor) -> Tensor:
    """Return the number of tokens of each row (B,), which must all stand before its padding.

    Args:
        is_token: True at tokens, (B, T) bool.

    Raises:
        ElmoError: If a row has padding before or between its tokens, which would be read in their place.
    """
    lengths = is_token.sum(dim=1)
    if not torch.equal(is_token, mask_of(lengths, is_token.shape[1])):
        raise ElmoError("`inputs`: a sentence has padding before or between its tokens; put all padding after them")
    return lengths


def require_batch(inputs: Tensor | None) -> Tensor:
    """Refuse character ids without a batch axis, or with too few ids per word for `boundary_words`."""
    if inputs is None:
        raise ElmoError(
            "`inputs`: are None, but not all of word_inputs are known words; give the ids of characters, too"
        )
    if not isinstance(cast(object, inputs), Tensor):
        kind = type(inputs).__name__
        raise ElmoError(f"`inputs`: expected a tensor, found {kind}; make it of sentences with elmo.batch_to_ids")
    if inputs.dim() < 3 or inputs.shape[-1] < SHORTEST:
        raise ElmoError(
            f"`inputs`: expected (…, T, C) with a batch axis and C ≥ {SHORTEST}, found {tuple(inputs.shape)}"
        )
    if inputs.dtype not in _WHOLE:
        raise ElmoError(f"`inputs`: expected whole numbers, the ids of characters, found {inputs.dtype}")
    return inputs.long()  # 261 and 262, which the boundaries need, don't fit into 8 bits


def require_numbers(word_inputs: Tensor) -> None:
    """Refuse numbers of words that are no tensor of whole numbers with a batch axis."""
    if not isinstance(cast(object, word_inputs), Tensor):
        raise ElmoError(f"`word_inputs`: expected a tensor, found {type(word_inputs).__name__}")
    if word_inputs.dim() < 2 or word_inputs.dtype not in _WHOLE:
        found = f"{tuple(word_inputs.shape)} of {word_inputs.dtype}"
        raise ElmoError(f"`word_inputs`: expected (…, T) whole numbers with a batch axis, found {found}")


def boundary_words(encoder: nn.Module, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ids (C,) of `<S>` and of `</S>`.

    Args:
        encoder: The token encoder that will read them.
        like: Ids (…, C) of other words.

    Raises:
        ElmoError: If the encoder reads the ids of a lexicon, where these numbers mean other words and characters.
    """
    if isinstance(encoder, WordCharEncoder):
        raise ElmoError(
            "`inputs`: a model of ELMoForManyLangs reads ids from its own lexicon, not characters; give its words to "
            "elmo.Elmo.from_pretrained as vocab_to_cache, and their numbers as word_inputs"
        )
    begin, end = (like.new_full(like.shape[-1:], PADDING + 1) for _ in range(2))
    for word, boundary in ((begin, BEGIN_SENTENCE), (end, END_SENTENCE)):
        # Each id is higher by 1 than the character, because 0 is the mask (`elmo.text.characters`).
        word[:3] = like.new_tensor([BEGIN_WORD + 1, boundary + 1, END_WORD + 1])
    return begin, end


def mask_of(lengths: Tensor, longest: int) -> Tensor:
    """Return a mask (B, `longest`), bool, that is true at the first `lengths` (B,) tokens of each row."""
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
