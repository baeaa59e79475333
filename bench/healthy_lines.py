"""Print the healthy sample that `firstfault rules check` holds every entry against: python bench/healthy_lines.py [LINES] [SEED]."""

import sys

from firstfault.rules.healthy import LINES, SEED, healthy_lines


def main(arguments: list[str]) -> int:
    """Write the lines to standard output."""
    count, seed = (int(text) for text in (arguments + [str(LINES), str(SEED)][len(arguments) :]))
    sys.stdout.writelines(line + "\n" for line in healthy_lines(count, seed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
