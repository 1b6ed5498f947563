#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: tools/topology_xml.py FOLDER

Writes the machines of test/data/topology as hwloc 2 XML, reduced to what topology discovery looks at. The README there says
from which public facts each of them was written.
"""
import itertools
import os
import sys
from xml.sax.saxutils import quoteattr

VERBS, NETWORK, GPU = 3, 2, 1  # hwloc's numbers for kinds of OS devices
GEN4_X16, GEN5_X16 = 31.507692, 63.015385  # GB/s


def bitmap(bits):
    """hwloc's way to write a set: 32-bit words, the highest first."""
    value = sum(1 << bit for bit in bits)
    words = []
    while value or not words:
        words.append(f"0x{value & 0xffffffff:08x}")
        value >>= 32
    return ",".join(reversed(words))


def sets(cpus, nodes):
    return {f"{prefix}{name}": bitmap(bits) for name, bits in (("cpuset", cpus), ("nodeset", nodes)) for prefix in ("", "complete_")}


def infos(**values):
    return [("info", {"name": name, "value": value}, []) for name, value in values.items()]


def item(kind, attributes, children=()):
    return ("object", {"type": kind, **attributes}, list(children))


def host_bridge(first_bus, last_bus, *children):
    return item("Bridge", {"bridge_type": "0-1", "depth": 0, "bridge_pci": f"0000:[{first_bus:02x}-{last_bus:02x}]"}, children)


def bridge(address, first_bus, last_bus, *children):
    return item("Bridge", {"bridge_type": "1-1", "depth": 1, "bridge_pci": f"0000:[{first_bus:02x}-{last_bus:02x}]",
                           "pci_busid": f"0000:{address}", "pci_type": "0604 [1000:c030] [1000:100b] b0",
                           "pci_link_speed": f"{GEN5_X16:.6f}"}, children)


def device(address, kind, ids, *children, speed=GEN5_X16):
    return item("PCIDev", {"pci_busid": f"0000:{address}", "pci_type": f"{kind} [{ids}] [0000:0000] 00",
                           "pci_link_speed": f"{speed:.6f}"}, children)


def os_device(name, kind, *children):
    return item("OSDev", {"name": name, "osdev_type": kind}, children)


def gpu(address, ids, model, **links):
    return device(address, "0302", ids, *infos(PCIDevice=model, **links))


def verbs_nic(address, kind, ids, name, gigabits, interface=None, speed=GEN5_X16):
    parts = infos(UcclepGigabits=str(gigabits)) + [os_device(name, VERBS, *infos(Port1State="4"))]
    if interface:
        parts.append(os_device(interface, NETWORK))
    return device(address, kind, ids, *parts, speed=speed)


def package(number, cores, first_cpu, sibling_offset, *devices):
    """One socket with one NUMA node. sibling_offset 0: one thread per core."""
    threads = [[cpu] + ([cpu + sibling_offset] if sibling_offset else []) for cpu in range(first_cpu, first_cpu + cores)]
    all_cpus = [cpu for core in threads for cpu in core]
    children = [item("NUMANode", {"os_index": number, **sets(all_cpus, [number]), "local_memory": 1 << 40})]
    for index, cpus in enumerate(threads):
        pus = [item("PU", {"os_index": cpu, **sets([cpu], [number])}) for cpu in cpus]
        children.append(item("Core", {"os_index": index, **sets(cpus, [number])}, pus))
    return all_cpus, number, item("Package", {"os_index": number, **sets(all_cpus, [number])}, children + list(devices))


def machine(name, *packages):
    cpus = [cpu for package_cpus, _, _ in packages for cpu in package_cpus]
    nodes = [number for _, number, _ in packages]
    allowed = {"allowed_cpuset": bitmap(cpus), "allowed_nodeset": bitmap(nodes)}
    return item("Machine", {"os_index": 0, **sets(cpus, nodes), **allowed},
                infos(HostName=name, Architecture="x86_64") + [tree for _, _, tree in packages])


def two_sockets(name, cores, threads, devices):
    """`devices`: those of each socket."""
    offset = 2 * cores if threads == 2 else 0
    return machine(name, *(package(i, cores, i * cores, offset, *devices[i]) for i in range(2)))


def h100_cx7():
    """A switch for each GPU with its NIC."""
    nics = [(0x18, "mlx5_0"), (0x40, "mlx5_3"), (0x4f, "mlx5_4"), (0x5e, "mlx5_5"),
            (0x9a, "mlx5_6"), (0xc0, "mlx5_9"), (0xce, "mlx5_10"), (0xdc, "mlx5_11")]
    gpus = [0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf]
    sockets = [[], []]
    for i, ((nic_bus, name), gpu_bus) in enumerate(zip(nics, gpus)):
        root = nic_bus - 3
        sockets[i // 4].append(host_bridge(root, gpu_bus, bridge(f"{root:02x}:01.0", root + 1, gpu_bus, bridge(
            f"{root + 1:02x}:00.0", root + 2, gpu_bus,
            bridge(f"{root + 2:02x}:00.0", nic_bus, nic_bus, verbs_nic(f"{nic_bus:02x}:00.0", "0207", "15b3:1021", name, 400, f"ibp{nic_bus}s0")),
            bridge(f"{root + 2:02x}:01.0", gpu_bus, gpu_bus, gpu(f"{gpu_bus:02x}:00.0", "10de:2330", "H100 SXM5 80GB"))))))
    nvswitches = [bridge(f"00:1c.{i}", 5 + i, 5 + i, device(f"{5 + i:02x}:00.0", "0680", "10de:22a3")) for i in range(4)]
    management = bridge("00:1d.0", 10, 10, device("0a:00.0", "0200", "8086:1563", os_device("eno3", NETWORK), speed=GEN4_X16 / 4))
    sockets[0].insert(0, host_bridge(0, 0x14, *nvswitches, management))
    return two_sockets("dgx-h100", 56, 2, sockets)


def p5en():
    """Four switches, each with two GPUs and four NICs."""
    sockets = [[], []]
    for i, bus in enumerate([0x55, 0x6e, 0x87, 0xa0]):
        nics = [verbs_nic(f"{b:02x}:00.0", "0200", "1d0f:efa2", f"rdmap{b}s0", 200) for b in range(bus, bus + 4)]
        gpus = [gpu(f"{b:02x}:00.0", "10de:2335", "H200", UcclepLinkKind="nvlink", UcclepLinkIsland="0") for b in (bus + 4, bus + 5)]
        root = bus - 2
        sockets[i // 2].append(host_bridge(root, bus + 5, bridge(f"{root:02x}:00.0", bus, bus + 5, *nics, *gpus)))
    return two_sockets("p5en.48xlarge", 48, 2, sockets)


def p5():
    """Eight switches, each with a GPU and four NICs."""
    sockets = [[], []]
    for i, bus in enumerate([0x4f, 0x60, 0x71, 0x82, 0x93, 0xa4, 0xb5, 0xc6]):
        nics = [verbs_nic(f"{b:02x}:00.0", "0200", "1d0f:efa1", f"rdmap{b}s0", 100, speed=GEN4_X16 / 2) for b in range(bus, bus + 4)]
        card = gpu(f"{bus + 4:02x}:00.0", "10de:2330", "H100 SXM5 80GB", UcclepLinkKind="nvlink", UcclepLinkIsland="0")
        sockets[i // 4].append(host_bridge(bus - 2, bus + 4, bridge(f"{bus - 2:02x}:00.0", bus, bus + 4, *nics, card)))
    return two_sockets("p5.48xlarge", 48, 2, sockets)


def mi300x_thor2():
    """A switch for each GPU with its NIC; every GPU has a switch of its own inside."""
    sockets = [[], []]
    for i, (root, gpu_bus) in enumerate([(0x00, 0x05), (0x18, 0x2b), (0x48, 0x5b), (0x60, 0x65),
                                         (0x80, 0x85), (0x98, 0xab), (0xc8, 0xdb), (0xe0, 0xe5)]):
        card = device(f"{gpu_bus:02x}:00.0", "1200", "1002:74a1", *infos(PCIDevice="Instinct MI300X"),
                      os_device(f"rsmi{i}", GPU, *infos(GPUModel="AMD Instinct MI300X OAM", XGMIHiveID="8b5ee5a1d27b0a3c")))
        inside = bridge(f"{gpu_bus - 2:02x}:00.0", gpu_bus - 1, gpu_bus, bridge(f"{gpu_bus - 1:02x}:00.0", gpu_bus, gpu_bus, card))
        nic_bus = gpu_bus + 1
        nic = verbs_nic(f"{nic_bus:02x}:00.0", "0200", "14e4:1760", f"bnxt_re{i}", 400, f"ens{i + 1}np0")
        sockets[i // 4].append(host_bridge(root, nic_bus, bridge(f"{root:02x}:01.1", root + 1, nic_bus, bridge(
            f"{root + 1:02x}:00.0", root + 2, nic_bus,
            bridge(f"{root + 2:02x}:00.0", gpu_bus - 2, gpu_bus, inside), bridge(f"{root + 2:02x}:04.0", nic_bus, nic_bus, nic)))))
    return two_sockets("mi300x", 64, 1, sockets)


def pcie_only():
    """Each socket has two GPUs and a NIC, all at root ports of their own."""
    sockets = [[], []]
    for i, (socket, bus) in enumerate([(0, 0x16), (0, 0x49), (1, 0x97), (1, 0xc9)]):
        card = gpu(f"{bus + 1:02x}:00.0", "10de:26b9", "L40S")
        sockets[socket].append(host_bridge(bus, bus + 1, bridge(f"{bus:02x}:01.0", bus + 1, bus + 1, card)))
    for socket, bus in enumerate([0x29, 0xa7]):
        nic = verbs_nic(f"{bus + 1:02x}:00.0", "0200", "15b3:1021", f"mlx5_{socket}", 200, f"ens{socket + 1}np0")
        sockets[socket].append(host_bridge(bus, bus + 1, bridge(f"{bus:02x}:01.0", bus + 1, bus + 1, nic)))
    return two_sockets("4xl40s", 32, 2, sockets)


def laptop():
    """A display and WiFi, which are no GPU and no NIC here."""
    display = device("00:02.0", "0300", "8086:a7a0", speed=0)
    wifi = device("00:14.3", "0280", "8086:51f1", os_device("wlp0s20f3", NETWORK), speed=0)
    return machine("laptop", package(0, 8, 0, 8, host_bridge(0, 0, display, wifi)))


def write(element, file, numbers, indent="  "):
    kind, attributes, children = element
    if kind == "object":
        attributes = {**attributes, "gp_index": next(numbers)}
    text = " ".join(f"{name}={quoteattr(str(value))}" for name, value in attributes.items())
    file.write(f"{indent}<{kind} {text}{'' if children else '/'}>\n")
    for child in children:
        write(child, file, numbers, indent + "  ")
    if children:
        file.write(f"{indent}</{kind}>\n")


MACHINES = {"h100-cx7": h100_cx7, "p5en": p5en, "p5": p5, "mi300x-thor2": mi300x_thor2, "pcie-only": pcie_only, "laptop": laptop}


def main(folder):
    for name, make in MACHINES.items():
        with open(os.path.join(folder, name + ".xml"), "w", encoding="utf-8") as file:
            file.write('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n')
            write(make(), file, itertools.count(1))
            file.write("</topology>\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
