"""``python -m refold``: the command line, where the console script is not on the path."""

from refold.cli.main import main

if __name__ == "__main__":
    main()
