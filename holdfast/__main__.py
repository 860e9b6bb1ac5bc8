"""`python -m holdfast` is the command `holdfast`."""

from holdfast.cli.main import app

if __name__ == "__main__":
    app(prog_name="holdfast")
