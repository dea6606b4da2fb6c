"""`elmo.Elmo`: the layer for task models, made from published files or any model we read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmo.formats.bilm_hdf5 import load_bilm
from elmo.formats.recognise import load
from elmo.nn.elmo import ElmoModule
from elmo.nn.scalar_mix import ScalarMix


class Elmo(ElmoModule):
    """ELMo representations for a task model, with AllenNLP's arguments and results.

    Example::

        elmo = Elmo("options.json", "weights.hdf5", num_output_representations=2, dropout=0.5)
        output = elmo(batch_to_ids([["A", "sentence", "."]]))
        first, second = output["elmo_representations"]  # (B, T, D) each; output["mask"] is (B, T)

    `scalar_mix_parameters` are scores before the softmax; giving them freezes the mixes, gamma too.
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        *,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        stateful: bool = False,
    ) -> None:
        super().__init__(
            load_bilm(Path(weight_file), Path(options_file)).bilm,
            num_output_representations,
            requires_grad=requires_grad,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            keep_sentence_boundaries=keep_sentence_boundaries,
            scalar_mix_parameters=scalar_mix_parameters,
            stateful=stateful,
        )

    @classmethod
    def from_pretrained(cls, source: str | Path, num_output_representations: int = 1, **options: Any) -> Elmo:
        """The layer from anything `elmo.load` reads; `options` are those of `ElmoModule`.

        Where the source holds scalar mixes that a task learned, the first ones start from those, layer norm
        included, unless `options` say otherwise.
        """
        model = load(source)
        elmo = cls.__new__(cls)  # past our own __init__, which takes the two published files
        ElmoModule.__init__(elmo, model.bilm, num_output_representations, **options)
        if options.get("scalar_mix_parameters") is None:
            for mix, stored in zip(elmo.mixes, model.mixes, strict=False):
                mix.load_state_dict(stored.state_dict())
                if "do_layer_norm" not in options and isinstance(mix, ScalarMix):
                    mix.layer_norm = stored.layer_norm
        return elmo
