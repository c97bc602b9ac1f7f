"""What all benches take on the command line."""
import argparse
from pathlib import Path


def options(about: str, repeat: int | None = None, repeats: str = "rounds") -> argparse.ArgumentParser:
    """`--target`, `--output` and, if there is a number by default, `--repeat`; a bench adds its own."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--target", type=Path, default="target", help="the build directory (default: target)")
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    if repeat is not None:
        parser.add_argument("--repeat", type=int, default=repeat, help=f"{repeats} (default: {repeat})")
    return parser


def those_named(names: list[str] | None, programs: list, parser: argparse.ArgumentParser) -> list:
    """The programs that `--program` names, all if it names none; one that names no program at all ends the bench with a message."""
    chosen = [program for program in programs if names is None or program.name in names]
    if not chosen:
        parser.error(f"--program: none of {', '.join(program.name for program in programs)}")
    return chosen
