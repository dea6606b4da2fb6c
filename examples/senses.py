"""Show that a model's vectors of a word are near each other if the word has the same sense.

For each word of `uses.tsv` (word, sense and sentence, between tabs; the sentences are our own) it prints how often the
nearest other use has the same sense, compared with chance, and the nearest uses of one use of each sense. It also draws
all uses in the plane, in one layer or in all of them. You can name a file of your own sentences.

    python examples/senses.py
    python examples/senses.py --pictures pictures/ --draw-layers
    python examples/senses.py run/ --uses mine.tsv --layer 1 --pictures pictures/
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import elmo
from elmo.analysis.senses import Uses, gather_uses, mark_uses, nearest_uses, plot_uses, separation
from elmo.analysis.wsd_data import Annotated
from elmo.embed.layers import Layers

USES = Path(__file__).with_name("uses.tsv")


def read_uses(path: Path) -> dict[str, list[Annotated]]:
    """Return the sentences by the word that they are examples of, which is annotated with its sense."""
    found: defaultdict[str, list[Annotated]] = defaultdict(list)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        word, sense, sentence, *_ = [*line.split("\t"), "", "", ""]
        if word not in sentence.split():
            raise elmo.ElmoError(
                f"{path}, line {number}: expected a word, its sense and a sentence with it, between tabs"
            )
        (marked,) = mark_uses([sentence.split()], word)
        found[word].append(Annotated(marked.tokens, [use._replace(senses=(sense,)) for use in marked.instances]))
    return dict(found)


def show_nearest(embedder: elmo.Embedder, word: str, uses: Uses, top: int) -> None:
    """Print, for the first use of each sense, the nearest others with their senses."""
    for sense in dict.fromkeys(uses.senses):
        query = uses.sentences[uses.senses.index(sense)]
        print(f"\n  {word} ({sense}): {' '.join(query)}")
        for cosine, number in nearest_uses(embedder, uses, word, query, top=top):
            print(f"    {cosine:.3f}  {uses.senses[number]:<8} {' '.join(uses.sentences[number])}")


def show_words(arguments: argparse.Namespace) -> None:
    """Show every word of the file."""
    layer: Layers = int(arguments.layer) if arguments.layer.isdecimal() else arguments.layer
    embedder = elmo.load(arguments.model)
    for word, sentences in read_uses(arguments.uses).items():
        uses = gather_uses(embedder, sentences, word, layer)
        found = separation(uses)
        print(f"\n{word}: the nearest other use has the same sense in {found.same:.0%} (by chance: {found.chance:.0%})")
        show_nearest(embedder, word, uses, arguments.top)
        if arguments.pictures:
            arguments.pictures.mkdir(parents=True, exist_ok=True)
            picture = arguments.pictures / f"{word}.png"
            layers = range(embedder.num_layers) if arguments.draw_layers else ()
            drawn = [gather_uses(embedder, sentences, word, number) for number in layers] or uses
            plot_uses(picture, drawn, f"{len(uses.senses)} uses of “{word}”")
            print(f"\n  {picture}")


def main() -> None:
    """Read the arguments, and show the words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="en", help="whatever elmo.load takes; default: en")
    parser.add_argument(
        "--uses", type=Path, default=USES, help="sentences with a word and its sense; default: examples/uses.tsv"
    )
    parser.add_argument("--layer", default="top", help="top, mean, or a layer's number")
    parser.add_argument("--top", type=int, default=4, help="uses to print for each sense")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="where to draw each word's uses")
    parser.add_argument("--draw-layers", action="store_true", help="draw the uses in each layer, not only in --layer")
    arguments = parser.parse_args()
    try:
        show_words(arguments)
    except (elmo.ElmoError, OSError, UnicodeDecodeError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
