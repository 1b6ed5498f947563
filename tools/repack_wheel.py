#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: tools/repack_wheel.py WHEEL LICENCE...

What meson-python leaves out of a wheel: the library under its soname, which programs that are linked with it look for; licences; and
the same bytes for the same contents. Files have the time SOURCE_DATE_EPOCH, else that of the last commit.
"""
import base64
import hashlib
import os
import subprocess
import sys
import time
import zipfile


def date():
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if seconds is None:
        done = subprocess.run(["git", "log", "-1", "--format=%ct"], check=False, capture_output=True, text=True)
        seconds = done.stdout.strip() or "315532800"  # 1980, the first year of a zip file
    return time.gmtime(int(seconds))[:6]


def soname(name):
    """libucclep.so.0 of libucclep.so.0.1.0."""
    folder, _, file = name.rpartition("/")
    return f"{folder}/{'.'.join(file.split('.')[:3])}" if file.startswith("libucclep.so.") else name


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main(path, *licences):
    with zipfile.ZipFile(path) as wheel:
        files = {soname(entry.filename): (wheel.read(entry), entry.external_attr) for entry in wheel.infolist() if not entry.is_dir()}
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    info = os.path.dirname(record)
    for licence in licences:
        with open(licence, "rb") as file:
            files[f"{info}/licenses/{licence}"] = file.read(), 0o100644 << 16
    del files[record]
    lines = [f"{name},sha256={digest(data)},{len(data)}" for name, (data, _) in sorted(files.items())]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode(), 0o100644 << 16
    when = date()
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (data, attributes) in sorted(files.items(), key=lambda item: (item[0] == record, item[0])):
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = attributes
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    os.replace(path + ".new", path)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
