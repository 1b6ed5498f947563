#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: embedded.py LIBRARY BLOB...: is every blob of GPU code inside the library? Exits 77 when there is none to look for."""
import sys


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main(library, blobs):
    if not blobs:
        print("no GPU code was built")
        return 77
    contents = read(library)
    absent = [blob for blob in blobs if read(blob) not in contents]
    for blob in absent:
        print(f"{library} does not hold {blob}")
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
