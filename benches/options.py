"""What all benches take on the command line, and what none takes from the user's settings."""
import argparse
import os
from pathlib import Path


def take_settings_away() -> None:
    """Takes what the user has set for Hinterland away from this process and what it starts: variables, but for the library and the
    tests' own, and the settings file. What is measured has the settings that a bench says."""
    kept = ("HINTERLAND_TEST_", "HINTERLAND_LIBRARY")
    for name in [name for name in os.environ if name.startswith("HINTERLAND_") and not name.startswith(kept)]:
        del os.environ[name]
    os.environ["HINTERLAND_CONFIG"] = os.devnull


# On import, by every bench: it is before the first program is started.
take_settings_away()


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
