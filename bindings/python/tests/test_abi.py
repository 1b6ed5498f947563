# SPDX-License-Identifier: Apache-2.0
"""The ctypes structs, enumerations and functions are those of the C header."""
import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import ucclep
from ucclep import abi, enums, errors
from ucclep.library import lib

HEADER = Path(__file__).parents[3] / "include/ucclep/ucclep.h"
STRUCTS = {f"ucclEp{cls.__name__}_t": cls for cls in abi.Struct.__subclasses__()}
ENUMS = {"UCCLEP_DEVICE_": enums.Device, "UCCLEP_MODE_": enums.Mode, "UCCLEP_LAYOUT_": enums.Layout,
         "UCCLEP_EXPERT_IDS_": enums.ExpertIds, "UCCLEP_OVERFLOW_": enums.OverflowRows, "UCCLEP_QUANT_": enums.Quant,
         "UCCLEP_REPLICA_": enums.ReplicaChoice}


@pytest.fixture(scope="module")
def header():
    return re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)


@pytest.fixture(scope="module")
def compiled(header, tmp_path_factory):
    """What the compiler says: "name value" lines."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    lines = []
    for name, cls in STRUCTS.items():
        macro = re.sub(r"(?<!^)([A-Z])", r"_\1", cls.__name__).upper()
        lines.append(f'printf("{name} %zu %u\\n", sizeof({name}), (unsigned)UCCLEP_{macro}_MAGIC);')
        for field, _ in cls._fields_:
            member = field.rstrip("_")
            size = f"sizeof((({name}*)0)->{member})"
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {member}), {size});')
    for name in re.findall(r"\b(?:UCCLEP_(?:DEVICE|MODE|LAYOUT|EXPERT_IDS|OVERFLOW|QUANT|REPLICA)_\w+|ucclEp\w+)(?= = \d)", header):
        lines.append(f'printf("{name} %d\\n", (int){name});')
    folder = tmp_path_factory.mktemp("abi")
    source = folder / "abi.c"
    source.write_text("#include <stdio.h>\n#include <ucclep/ucclep.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    subprocess.run(["cc", "-std=c99", "-Wall", "-Werror", f"-I{HEADER.parents[1]}", source, "-o", folder / "abi"], check=True)
    output = subprocess.run([folder / "abi"], check=True, capture_output=True, text=True).stdout
    return {name: tuple(map(int, values)) for name, *values in map(str.split, output.splitlines())}


def test_structs(header, compiled):
    in_header = set(re.findall(r"\} (ucclEp\w+_t);", header)) - {"ucclEpResult_t", "ucclEpDataType_t"}
    assert set(STRUCTS) == in_header
    for name, cls in STRUCTS.items():
        assert compiled[name] == (ctypes.sizeof(cls), cls.MAGIC)
        members = [field for base in (abi.Struct, cls) for field, _ in base._fields_]
        body = re.search(r"typedef struct \{([^{}]*)\} " + name + ";", header).group(1)
        declared = re.findall(r"(?:\(\*)?(\w+)(?:\[\d+\])?(?:\)\([^)]*\))?\s*(?=[,;])", body)
        assert [field.rstrip("_") for field in members] == declared, name
        for field in members[2:]:
            descriptor = getattr(cls, field)
            assert compiled[f"{name}.{field}"] == (descriptor.offset, descriptor.size), f"{name}.{field}"


def test_made_structs_have_size_and_magic():
    for cls in STRUCTS.values():
        made = cls()
        assert (made.size, made.magic) == (ctypes.sizeof(cls), cls.MAGIC)
    assert abi.CommConfig().device_index == -1
    np = pytest.importorskip("numpy")
    packed, made = ucclep.tensor(np.zeros((2, 3), np.float32)).struct, abi.Tensor()
    assert (packed.size, packed.magic) == (made.size, made.magic)
    assert (packed.dtype, packed.ndim) == (enums.DataType.FLOAT32, 2)
    assert (list(packed.sizes), list(packed.strides)) == ([2, 3, 0, 0], [3, 1, 0, 0])


def test_enumerations(header, compiled):
    for prefix, cls in ENUMS.items():
        ours = {f"{prefix}{member.name}": (member.value,) for member in cls}
        theirs = {name: value for name, value in compiled.items()
                  if name.startswith(prefix) and name != "UCCLEP_DEVICE_INDEX_CURRENT"}
        assert ours == theirs
    declared = re.search(r"typedef enum \{([^{}]*)\} ucclEpDataType_t;", header).group(1)
    theirs = {name[6:].lower(): compiled[name] for name in re.findall(r"ucclEp\w+", declared) if name != "ucclEpNoDataType"}
    assert {member.name.replace("_", "").lower(): (member.value,) for member in enums.DataType} == theirs


def test_every_function_is_declared(header):
    declared = set(re.findall(r"^(?:ucclEpResult_t|const char\*) (ucclEp\w+)\(", header, flags=re.M))
    assert declared == set(abi.FUNCTIONS) | set(abi.STRINGS)
    for name, arguments in {**abi.FUNCTIONS, **abi.STRINGS}.items():
        prototype = re.search(name + r"\(([^)]*)\);", header).group(1)
        assert len(arguments) == (0 if prototype == "void" else prototype.count(",") + 1), name


def test_every_code_has_an_exception():
    for code in range(1, 13):
        if code != 7:  # ucclEpInProgress: no call returns it
            assert issubclass(errors.BY_CODE[code], ucclep.Error)


def test_errors_carry_code_and_message():
    with pytest.raises(ucclep.InvalidArgument, match="version") as caught:
        ucclep.library.check(lib.ucclEpGetVersion(None))
    assert caught.value.code == 4
    assert caught.value.message in str(caught.value)


def test_version():
    number = int(re.search(r"#define UCCLEP_VERSION (\d+)", HEADER.read_text()).group(1))
    assert ucclep.version() == f"{number // 10000}.{number // 100 % 100}.{number % 100}" == ucclep.__version__
    assert ucclep.version() in ucclep.build_info()
