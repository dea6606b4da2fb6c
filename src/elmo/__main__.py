"""`python -m elmo` is the command `elmo`."""

from elmo.cli.main import main

if __name__ == "__main__":
    main()
