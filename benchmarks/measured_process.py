"""Run a command and print its seconds and its peak of memory in GB, as JSON.

    python benchmarks/measured_process.py COMMAND ...

A process begins with the peak of the one that started it. This program imports nothing large, so that the peak it
prints is that of the command.
"""

import json
import os
import sys
import time


def main() -> None:
    start = time.perf_counter()
    with open(os.devnull, "wb") as nothing:
        quiet = [(os.POSIX_SPAWN_DUP2, nothing.fileno(), 1)]
        process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
        _, status, usage = os.wait4(process, 0)
    if status:
        sys.exit(f"{' '.join(sys.argv[1:])} failed.")
    print(json.dumps([time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e9]))


if __name__ == "__main__":
    main()
