"""What a model card tells of the training, beside its figures: the text, and the machine."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from elmo.text.corpus import Corpus

_CPUINFO = Path("/proc/cpuinfo")
"""Where Linux tells the name of the processor; Python's `platform` mostly doesn't."""


def text_facts(corpus: Corpus) -> dict[str, str]:
    """Size, origin and treatment of the text, name to value; what `elmo prepare` wasn't told is left out."""
    source, settings = corpus.source, corpus.settings
    case = "lower-cased" if settings["lowercase"] else "case kept"
    facts = {
        "training text": f"{corpus.num_tokens:,} tokens in {corpus.num_sentences:,} sentences",
        "its files": ", ".join(source.get("inputs", [])),
        "its language": source.get("language"),
        "its license": source.get("license"),
        "its tokens": f"tokenizer {settings['tokenizer']}, {case}",
        "vocabulary": f"{corpus.vocabulary_size:,} words, {corpus.oov_rate:.2%} of the tokens are not in it",
    }
    return {name: value for name, value in facts.items() if value}


def machine_name(device: torch.device) -> str:
    """What `device` is: the GPU's name, or the processor's with the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    num_threads = torch.get_num_threads()
    return f"{processor_name()}, {num_threads} thread{'s' if num_threads > 1 else ''}"


def processor_name() -> str:
    """The processor's name, or where it can't be read the kind of machine."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
