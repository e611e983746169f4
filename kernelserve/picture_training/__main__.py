"""Command line: `python -m kernelserve.picture_training train|accuracy`."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from kernelserve.errors import KernelserveError

__all__ = ["main"]

_MINUTES = {"caption": 60.0, "answer": 60.0}
_OF_PROCESSOR = "of processor time, all threads together (default: %(default)s)"


def main() -> int:
    """Train the eyes, or measure what they see."""
    arguments = _parse(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        arguments.run(arguments)
    except KernelserveError as error:
        sys.stderr.write(f"kernelserve.picture_training: {error}\n")
        return 1
    return 0


def _train(arguments: argparse.Namespace) -> None:
    import torch

    from kernelserve.picture_training.answer_stage import learn_answers
    from kernelserve.picture_training.caption_stage import learn_captions
    from kernelserve.picture_training.picture_model import PictureModel

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    model = PictureModel.start(seed=arguments.seed)
    if arguments.go_on:
        model.load_eyes(arguments.go_on)
    folder, seed = arguments.folder, arguments.seed
    learn_captions(model, arguments.caption_minutes, seed, folder, is_new=not arguments.go_on)
    model.save(folder)
    learn_answers(model, arguments.answer_minutes, seed + 1, folder)
    model.save(folder)


def _accuracy(arguments: argparse.Namespace) -> None:
    from kernelserve.picture_training.accuracy import measure_accuracy

    counts = measure_accuracy(
        arguments.model, arguments.pictures, most_things=arguments.most_things
    )
    for topic, (right, asked) in counts.items():
        sys.stdout.write(f"{topic:12} {right:5} of {asked:5}  {100 * right / asked:5.1f} %\n")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kernelserve.picture_training", description=__doc__
    )
    commands = parser.add_subparsers(required=True)
    train = commands.add_parser("train", help="train new eyes and write their folder")
    train.add_argument("folder", type=Path)
    for stage, minutes in _MINUTES.items():
        train.add_argument(f"--{stage}-minutes", type=float, default=minutes, help=_OF_PROCESSOR)
    train.add_argument("--go-on", type=Path, help="a folder whose eyes to go on from")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--threads", type=int, help="how many threads torch may use")
    train.set_defaults(run=_train)
    accuracy = commands.add_parser("accuracy", help="ask about pictures that were not trained on")
    accuracy.add_argument("--model", default="smollm2-135m-vision", help="name or folder")
    accuracy.add_argument("--pictures", type=int, default=400)
    accuracy.add_argument("--most-things", type=int, default=4, help="in one picture, 1 to 4")
    accuracy.set_defaults(run=_accuracy)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
