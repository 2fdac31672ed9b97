"""The command line: one file per command, each imported only when it runs."""

import sys


def main() -> None:
    """Entry point of `edgeengine`. On a device without the command line's packages it says what to install."""
    try:
        from edgeengine.cli.main import main as run
    except ModuleNotFoundError as e:
        if e.name not in ("typer", "rich"):
            raise
        print(f"edgeengine: the command line needs {e.name}; install it with: pip install 'edgeengine[cli]'", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    run()
