"""`python -m allswell` is the `allswell` command."""

from allswell.interfaces.cli import main

if __name__ == "__main__":
    main()
