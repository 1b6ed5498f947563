# SPDX-License-Identifier: Apache-2.0
"""What kernels are given, as Python has it: the layout of the C header, and addresses of filled objects."""
import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import ucclep
from ucclep import Layout, Mode
from ucclep import device_object as objects

INCLUDE = Path(__file__).parents[3] / "include"
KINDS = {"Group": objects.DeviceGroup, "Handle": objects.DeviceHandle, "Window": objects.DeviceWindow}


def test_layout_is_that_of_the_header(tmp_path):
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    lines = ['printf("abi %u 0\\n", UCCLEP_DEVICE_ABI);']
    expected = {"abi": (objects.ABI, 0)}
    for name, kind in KINDS.items():
        struct = f"ucclEpDevice{name}Layout_t"
        lines.append(f'printf("{name} %zu %u\\n", sizeof({struct}), UCCLEP_DEVICE_{name.upper()}_MAGIC);')
        expected[name] = (ctypes.sizeof(kind), kind.MAGIC)
        for field in [field for base in (objects.DeviceObject, kind) for field, *_ in base._fields_]:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({struct}, {field}), sizeof((({struct}*)0)->{field}));')
            expected[f"{name}.{field}"] = (getattr(kind, field).offset, getattr(kind, field).size)
    source = tmp_path / "layout.c"
    source.write_text("#include <stddef.h>\n#include <stdio.h>\n#include <ucclep/device_library.h>\nint main(void) {\n"
                      + "\n".join(lines) + "\n}\n")
    subprocess.run(["cc", "-std=c99", "-Wall", "-Werror", f"-I{INCLUDE}", source, "-o", tmp_path / "layout"], check=True)
    said = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    assert {name: (int(a), int(b)) for name, a, b in map(str.split, said.splitlines())} == expected


def test_every_function_can_be_called_from_triton():
    triton = (Path(objects.__file__).parent / "triton.py").read_text()
    declared = re.findall(r"^UCCLEP_LIBRARY_FN int32_t (ucclep_\w+_block)\(([^)]*)\)", (INCLUDE / "ucclep/device_library.h").read_text(), re.M)
    types = {"uint64_t": "u64", "uint32_t": "u32", "int32_t": "i32"}
    for name, parameters in declared:
        wanted = " ".join(types[word.split()[0]] for word in parameters.split(","))
        assert f'"{name}", "{wanted}"' in triton
    assert len(declared) == triton.count('_function("ucclep_')


def test_addresses_of_filled_objects(ranks, device):
    if device != "host":
        pytest.skip("what lies in memory of a GPU, ctypes cannot read")

    def rank_main(comm):
        group = ucclep.Group(comm, num_experts=4, top_k=2, max_tokens_per_rank=8, max_token_bytes=64, num_signals=1)
        handle = group.handle(Layout.EXPERT_MAJOR, Mode.LL)
        memory = comm.alloc(4096)
        window = comm.register(memory)
        for name, owner in (("Group", group), ("Handle", handle), ("Window", window)):
            there = KINDS[name].from_address(owner.device_address)
            assert (there.size, there.magic, there.abi) == (ctypes.sizeof(there), there.MAGIC, objects.ABI)
            assert owner.device_address == ctypes.addressof(there)
        assert objects.DeviceGroup.from_address(group.device_address).rank == comm.rank
        assert objects.DeviceHandle.from_address(handle.device_address).group.rank == comm.rank
        there = objects.DeviceWindow.from_address(window.device_address)
        assert (there.rank, there.ranks, there.bytes, there.data) == (comm.rank, 2, 4096, memory.pointer)
        sizes = (ctypes.c_uint64 * 2).from_address(there.peer_bytes)
        assert list(sizes) == [4096, 4096]
        address = handle.device_address
        handle.destroy()
        with pytest.raises(ucclep.InvalidArgument):
            handle.device_address
        assert group.handle(Layout.EXPERT_MAJOR, Mode.LL).device_address == address  # collected
        other = group.handle(Layout.EXPERT_MAJOR, Mode.LL)
        assert other.device_address == address
        window.close()
        group.destroy()
        return True

    assert ranks(2, rank_main) == [True, True]


def test_library_file(tmp_path, monkeypatch):
    monkeypatch.setenv("UCCLEP_DEVICE_LIBRARY", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="make device-library"):
        objects.library_file()
    (tmp_path / "libucclep_device.bc").write_bytes(b"BC")
    assert objects.library_file() == str(tmp_path / "libucclep_device.bc")
