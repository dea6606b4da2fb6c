"""A terminal that keeps what was shown on it."""

import io


class Terminal(io.StringIO):
    """Text that is shown on a terminal."""

    encoding = "utf-8"  # otherwise tqdm draws with #

    def isatty(self) -> bool:
        return True
