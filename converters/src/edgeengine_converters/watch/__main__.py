"""`python -m edgeengine_converters.watch train --out DIR`: trains the exercise classifier and exports it.

Progress goes to stderr. Exit status: 0 done, 2 bad input or a refused model (one line on stderr says which).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from edgeengine_converters.errors import ConversionError
from edgeengine_converters.watch import source
from edgeengine_converters.watch.data import partner_of

DEMO_SUBJECT = 4
"""The subject the committed model has never seen; the accuracy is near the mean of all ten."""


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m edgeengine_converters.watch")
    train = parser.add_subparsers(dest="command", required=True).add_parser(
        "train", help="train without one subject and the exercise partner, export, write the manifest"
    )
    train.add_argument("--out", type=Path, required=True, metavar="DIR", help="where both files go")
    train.add_argument(
        "--subject",
        type=int,
        default=DEMO_SUBJECT,
        metavar="N",
        help="subject to leave out (default: %(default)s)",
    )
    train.add_argument(
        "--loso", action="store_true", help="also measure every other subject, left out in turn"
    )
    train.add_argument("--data", type=Path, metavar="PATH", help="watch_dataset.npy (default: seglearn's)")
    train.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    train.add_argument("--epochs", type=int, metavar="N", help="default: that of the recipe")
    train.add_argument("--json", action="store_true", help="print the manifest to stdout")
    return parser


def _train(options: argparse.Namespace) -> None:
    partner_of(options.subject)
    recordings = source.read(options.data)
    # Bad input is told above at once; torch takes seconds to import.
    from edgeengine_converters.watch import artefact
    from edgeengine_converters.watch.evaluate import leave_each_out, leave_out
    from edgeengine_converters.watch.train import Recipe

    recipe = Recipe(seed=options.seed, **({} if options.epochs is None else {"epochs": options.epochs}))
    artefact.prepare(options.out)
    measured = leave_each_out(recordings, recipe, _tell) if options.loso else None
    # A fold is the same whether or not the others were trained: each starts from the seed.
    fold = measured[options.subject] if measured else leave_out(recordings, options.subject, recipe, _tell)
    exported = artefact.export_fold(recordings, options.subject, fold)
    described = artefact.manifest(recordings, options.subject, recipe, fold, exported, measured)
    for path in artefact.write(options.out, exported.content, described):
        _tell(f"wrote {path}")
    if options.json:
        print(json.dumps(described, ensure_ascii=False))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        _train(options)
    except ConversionError as error:
        _tell(f"error: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
