"""Entry point: the commands by name, errors as one line with their exit code."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

import edgeengine
from edgeengine.cli import app as new_app
from edgeengine.cli import (
    build,
    convert,
    demo,
    devices,
    finetune,
    inspect,
    plan,
    profile,
    profiles,
    report,
    run,
    simulate,
    split,
    trainable,
)
from edgeengine.errors import EdgeEngineError, InternalError, UserError

app = typer.Typer(
    name="edgeengine",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"edgeengine {edgeengine.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run several ONNX models under deadlines on the processors of one small device: live, or simulated."""


# In the order in which --help lists them.
COMMANDS = (
    demo,
    new_app,
    devices,
    inspect,
    convert,
    split,
    build,
    trainable,
    profile,
    profiles,
    plan,
    run,
    finetune,
    simulate,
    report,
)
for module in COMMANDS:
    app.command(name=module.__name__.rsplit(".", 1)[1], epilog="\n\n".join(("Examples:", *module.EXAMPLES)))(module.command)


def _require_text(arguments: list[str]) -> None:
    """Raises UserError for bytes that are no UTF-8: such names cannot be written into any of our files."""
    for text in arguments:
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise UserError(f"argument {os.fsencode(text)!r} is not UTF-8; rename the file") from e


def main() -> None:
    """Run one command; exit codes: 2 your input, 3 infeasible, 4 device, 70 our defect, 130 interrupted."""
    try:
        _require_text(sys.argv[1:])
        app()
    except EdgeEngineError as e:
        print(f"edgeengine: {e}", file=sys.stderr)
        sys.exit(e.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away: not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as e:  # output that cannot be written, a disk that is full
        print(f"edgeengine: {e.filename or 'output'}: {e.strerror}", file=sys.stderr)
        sys.exit(UserError.exit_code)
    except Exception as e:  # noqa: BLE001  whatever else comes up is our defect: show where, and say so by the exit code
        if isinstance(e, ModuleNotFoundError) and e.name == "onnx":
            print(f"edgeengine: this needs {e.name}; install it with: pip install 'edgeengine[cli]'", file=sys.stderr)
            sys.exit(UserError.exit_code)
        traceback.print_exc()
        print("edgeengine: this is a defect of edgeengine; please report it with the lines above", file=sys.stderr)
        sys.exit(InternalError.exit_code)


if __name__ == "__main__":
    main()
