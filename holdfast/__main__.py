"""`python -m holdfast` is the command `holdfast`."""

from holdfast.cli.start import start

if __name__ == "__main__":
    start()
