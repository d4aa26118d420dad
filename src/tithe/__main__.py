"""`python -m tithe` is the command `tithe`."""

from tithe.cli.main import main

if __name__ == "__main__":
    main()
