"""Make the pictures of programs that the documentation shows, in docs/images: each is what the program shows.

    python benchmarks/pages/screenshots.py
    python benchmarks/pages/screenshots.py --browser /opt/chromium/chrome --only explore

- `explore.png`: the page of `elmo explore`, by a browser (Chromium or Chrome). Without one it is left out.
- `play.png`: the picture of the demo, by `examples/senses.py`.
- `change.svg`: a table on a terminal.
- `progress.svg`: bars on a terminal, as they were in the middle of their work. Their times differ at each run.

The text is that of the notebooks, which is our own.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from PIL import Image
from rich.console import Console
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.script import script

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
LETTERS = ROOT / "examples" / "notebooks" / "letters"
USES = ROOT / "examples" / "uses.tsv"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

COLUMNS, WINDOW = 116, "1150,1200"
MOST_COLORS = 256
"""The number of colors in a picture of a browser, which needs no more, and then takes half of the bytes."""

PYTHON = [sys.executable, "-m", "elmo"]


def in_terminal(command: list[str], folder: Path) -> str:
    """Run a command of elmo on a terminal of `COLUMNS`, and return all that it wrote there."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = subprocess.Popen([*PYTHON, *command], cwd=folder, stdout=child, stderr=child)
    os.close(child)
    shown = b""
    with suppress(OSError):  # which Linux raises at the end of a terminal
        while block := os.read(parent, 1 << 16):
            shown += block
    os.close(parent)
    if process.wait():
        raise SystemExit(f"elmo {' '.join(command)}: failed\n{shown.decode()}")
    return shown.decode()


def lines_at_end(shown: str) -> list[str]:
    """Return the lines that are left on the terminal at the end. A line that was overwritten is as it was last."""
    return [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in shown.rstrip().split("\n")]


def bar_in_the_middle(shown: str) -> str:
    """Return the state of a progress bar that is nearest to 60 %."""
    bars = [(int(share), bar) for bar, share in re.findall(r"([^\r\n]*?(\d+)%\|[^\r\n]+)", shown)]
    return min(bars, key=lambda found: abs(found[0] - 60))[1].rstrip()


def write_terminal(path: Path, lines: list[str]) -> None:
    """Write lines as a picture of a terminal; those of commands begin with $."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        for line in lines:
            console.print(Text(line, style="bold" if line.startswith("$ ") else ""), soft_wrap=True)
        picture = console.export_svg(title="elmo", unique_id=path.stem)
    # Nothing is loaded from elsewhere: any monospaced font does, since the picture says how long each text is.
    picture = re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.S).replace("Fira Code, monospace", "monospace")
    path.write_text(picture, encoding="utf-8")


def draw_change(folder: Path) -> None:
    """Write `change.svg`."""
    command = ["change", "letters.index", "--by", "century", "--min-count", "8", "--top", "8"]
    shown = in_terminal(command, folder)
    write_terminal(IMAGES / "change.svg", [f"$ elmo {' '.join(command)}", *lines_at_end(shown)])


def draw_progress(folder: Path) -> None:
    """Write `progress.svg`."""
    lines: list[str] = []
    for command in (
        ["pretrain", "corpus", "run", "--recipe", "tiny", "--max-steps", "300"],
        ["embed", "en", "letters.txt", "letters.h5"],
    ):
        shown = in_terminal(command, folder)
        lines += [f"$ elmo {' '.join(command)}", bar_in_the_middle(shown)]
    write_terminal(IMAGES / "progress.svg", lines)


def draw_play(folder: Path) -> None:
    """Write `play.png`."""
    script = ROOT / "examples" / "senses.py"
    pictures = folder / "pictures"
    subprocess.run([sys.executable, script, "--pictures", pictures, "--draw-layers"], check=True, capture_output=True)
    shutil.copy(pictures / "play.png", IMAGES)


def draw_explore(folder: Path, browser: str) -> None:
    """Write `explore.png`."""
    command = [*PYTHON, "explore", "en", "--index", "letters.index", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().split()[0]
            asked = {"text": "Our files are in the cloud .", "line": 0, "word": 5, "top": 6, "groups": 2}
            picture = folder / "explore.png"
            quiet = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
            options = [f"--window-size={WINDOW}", f"--screenshot={picture}", f"{address}/?{urlencode(asked)}"]
            subprocess.run([browser, *quiet, *options], check=True, capture_output=True, timeout=300)
        finally:
            server.terminate()
    Image.open(picture).convert("RGB").quantize(MOST_COLORS).save(IMAGES / "explore.png", optimize=True)


def prepare(folder: Path) -> None:
    """Write the texts, an index of them, and a corpus."""
    for path in LETTERS.iterdir():
        shutil.copy(path, folder)
    letters = [path.read_text(encoding="utf-8") for path in sorted(LETTERS.glob("*.txt"))]
    uses = [line.split("\t")[2] for line in USES.read_text(encoding="utf-8").splitlines()]
    names = [path.name for path in sorted(LETTERS.glob("*.txt"))]
    run = [*PYTHON, "index", "en", *names, "letters.index", "--tokenizer", "ptb", "--metadata", "dates.tsv"]
    subprocess.run(run, cwd=folder, check=True, capture_output=True)
    (folder / "letters.txt").write_text("".join([*letters, "\n".join(uses), "\n"]) * 10, encoding="utf-8")
    run = [*PYTHON, "prepare", "corpus", "letters.txt", "--tokenizer", "ptb"]
    subprocess.run(run, cwd=folder, check=True, capture_output=True)


@script
def main() -> None:
    """Make all pictures, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--browser",
        default=next(filter(None, map(shutil.which, BROWSERS)), None),
        metavar="PROGRAM",
        help="Chromium or Chrome; default: the first that is found",
    )
    parser.add_argument("--only", choices=["change", "explore", "play", "progress"], help="this picture only")
    arguments = parser.parse_args()
    draw: dict[str, Callable[[Path], None]] = {"change": draw_change, "play": draw_play, "progress": draw_progress}
    if arguments.browser is not None:
        draw["explore"] = lambda folder: draw_explore(folder, arguments.browser)
    elif arguments.only in (None, "explore"):
        print("explore.png: needs Chromium or Chrome (--browser); it stays as it is")
    with TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for picture in draw if arguments.only is None else draw.keys() & {arguments.only}:
            draw[picture](folder)
            print(picture, flush=True)


if __name__ == "__main__":
    main()
